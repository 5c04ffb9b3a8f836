"""Enqueue, find, claim and complete jobs; their history."""
