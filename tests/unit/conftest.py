"""A clock, a store, its queues and a world, for the tests of every package."""

from tests.harness.fixtures import clock, queues, store, world

__all__ = ["clock", "queues", "store", "world"]
