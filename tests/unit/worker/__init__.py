"""The worker and its parts."""
