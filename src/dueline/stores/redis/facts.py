"""Facts about a server, for operators."""

from collections.abc import Mapping

from dueline.stores.redis.address import Address
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
        "survives loss of the machine": _loss(connections.address.wait),
        "memory": _fill(memory),
        "connections": " of ".join(
            clients.get(name, "?") for name in ("connected_clients", "maxclients")
        ),
        "replicas that confirm": f"{connections.address.wait} wanted,"
        f" {replication.get('connected_slaves', '?')} connected"
        f"{_promoters(connections.address)}",
    }
    if cluster := connections.cluster():
        facts["cluster"] = cluster
    if replication.get("role") == "slave":
        facts["read-only"] = "the server is a replica"
    names = ("appendonly", "appendfsync", "no-appendfsync-on-rewrite")
    facts["append-only file"] = ", ".join(f"{name} {settings.get(name, '?')}" for name in names)
    statuses = {persistence.get(f"aof_last_{what}_status", "ok") for what in ("write", "bgrewrite")}
    if statuses != {"ok"}:
        facts["append-only file"] = "the last write failed"
    return facts


def _fill(memory: Mapping[str, str]) -> str:
    """Return how full the server's memory is."""
    used, most = int(memory.get("used_memory", 0)), int(memory.get("maxmemory", 0))
    if not most:
        return f"{memory.get('used_memory_human', '?')}, without a limit"
    return (
        f"{memory.get('used_memory_human')} of {memory.get('maxmemory_human')}, {used / most:.0%}"
    )


def _promoters(address: Address) -> str:
    """Return who makes a replica the primary."""
    if address.sentinels:
        return ", and sentinels that promote them"
    return ", and a cluster that promotes them" if address.nodes else ""


def _loss(wait: int) -> str:
    """Return what a failover loses."""
    if wait:
        return f"nothing is lost that {wait} of its replicas confirmed, if one of these takes over"
    return "as far as the server's replicas do; a failover loses what they did not have"
