"""Runs of streams: producers, members of groups, and resharding."""
