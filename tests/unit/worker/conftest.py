"""What the worker's parts stand on."""

from tests.unit.jobs.conftest import clock, queues, store

__all__ = ["clock", "queues", "store"]
