"""Periodic maintenance by an elected leader. Correctness never depends on it."""
