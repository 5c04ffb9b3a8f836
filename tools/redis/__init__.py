"""Real Redis and Valkey servers on loopback, without a container."""

from tools.redis.cluster import Slots, slot_of
from tools.redis.server import KINDS, RedisError, Server
from tools.redis.watched import Watched

__all__ = ["KINDS", "RedisError", "Server", "Slots", "Watched", "slot_of"]
