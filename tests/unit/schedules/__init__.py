"""Calls that recur."""
