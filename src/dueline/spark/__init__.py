"""Queues and streams on Spark."""

from dueline.spark.session import read, session

__all__ = ["read", "session"]
