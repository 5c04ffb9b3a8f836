"""Append-only logs, as history and streams use them."""
