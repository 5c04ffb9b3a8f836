"""A real Cassandra, without a container.

Fetches the server's jars once through Maven and runs one or three nodes on loopback as plain
Java processes: `python -m tools.cassandra up`. Tests use `Ring` and `Node` directly.
"""

from tools.cassandra.jars import CassandraError
from tools.cassandra.node import Node
from tools.cassandra.ring import Ring

__all__ = ["CassandraError", "Node", "Ring"]
