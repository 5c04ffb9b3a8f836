"""Schedules of other libraries, read as dueline's: `dueline import`."""
