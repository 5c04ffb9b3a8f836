"""Tests of `dueline.web`."""
