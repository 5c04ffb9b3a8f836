"""The engines, on the stores that need no server."""
