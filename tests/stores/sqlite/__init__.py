"""Tests of sqlite."""
