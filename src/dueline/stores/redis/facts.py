"""Facts about a server, for operators."""

from collections.abc import Mapping

from dueline.stores.redis.connection import Connections
from dueline.stores.redis.durability import guarantees
from dueline.stores.redis.library import SCHEMA_VERSION


def facts_of(connections: Connections) -> Mapping[str, str]:
    """Return facts and guarantees of a server."""
    server, persistence, memory, replication, clients = (
        connections.info(section)
        for section in ("server", "persistence", "memory", "replication", "clients")
    )
    settings = connections.settings()
    is_valkey = "valkey_version" in server
    version = server.get("valkey_version") if is_valkey else server.get("redis_version")
    facts = {
        "store": "valkey" if is_valkey else "redis",
        "address": str(connections.address),
        "server": version or "?",
        "schema": SCHEMA_VERSION,
        **guarantees(settings),
        "survives loss of the machine": "as far as the server's replicas do; they are behind, and a"
        " failover loses what they did not have",
        "memory": f"{memory.get('used_memory_human', '?')} of "
        f"{memory.get('maxmemory_human', '?').replace('0B', 'no limit')}",
        "connections": " of ".join(
            clients.get(name, "?") for name in ("connected_clients", "maxclients")
        ),
        "connected replicas": replication.get("connected_slaves", "?"),
    }
    if replication.get("role") == "slave":
        facts["read-only"] = "the server is a replica"
    if persistence.get("aof_last_write_status", "ok") != "ok":
        facts["append-only file"] = "the last write failed"
    if settings and settings.get("no-appendfsync-on-rewrite") == "yes":
        facts["rewrites"] = "nothing is flushed meanwhile (no-appendfsync-on-rewrite yes)"
    return facts
