"""Measurements, each against a limit taken in the same run."""
