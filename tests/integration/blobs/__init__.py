"""Blobs: large arguments and results, on every store."""
