"""Tests of cassandra."""
