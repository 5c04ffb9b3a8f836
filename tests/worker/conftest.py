"""What the worker's parts stand on."""

from tests.engine.conftest import clock, queues, store

__all__ = ["clock", "queues", "store"]
