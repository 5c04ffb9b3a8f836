"""Tests of the Redis store."""
