"""Queues and streams on Spark."""

from dueline.spark.session import enqueue, read, session
from dueline.spark.sink import Written

__all__ = ["Written", "enqueue", "read", "session"]
