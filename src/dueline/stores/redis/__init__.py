"""Stores in Redis and Valkey."""
