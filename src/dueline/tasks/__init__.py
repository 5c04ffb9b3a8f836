"""Handlers, their arguments, payload codecs and hooks."""
