"""Queues and streams on Spark."""

from dueline.spark.consuming import Consuming, consume
from dueline.spark.session import enqueue, read, session
from dueline.spark.sink import Written

__all__ = ["Consuming", "Written", "consume", "enqueue", "read", "session"]
