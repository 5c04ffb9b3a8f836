"""Processes that die, stall, fork or run out of room."""
