"""Handlers that run on the executors."""
