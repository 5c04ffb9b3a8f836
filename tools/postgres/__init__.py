"""A real PostgreSQL on loopback, without a container: Debian's server, a cluster of its own."""

from tools.postgres.cluster import Cluster, PostgresError

__all__ = ["Cluster", "PostgresError"]
