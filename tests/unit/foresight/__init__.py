"""Tests of `dueline.foresight`."""
