"""Real Redis and Valkey servers on loopback, without a container."""

from tools.redis.server import KINDS, RedisError, Server

__all__ = ["KINDS", "RedisError", "Server"]
