"""Tests of durable functions."""
