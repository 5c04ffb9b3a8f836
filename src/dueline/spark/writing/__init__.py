"""Data frames as jobs."""
