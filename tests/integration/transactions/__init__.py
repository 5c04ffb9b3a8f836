"""Transactions of the caller's."""
