"""Streams and their consumers, in time that stands still."""
