"""What a server keeps, as its settings say; servers that would lose jobs are refused."""

from collections.abc import Mapping
from typing import Final

from dueline.core.errors import ConfigError
from dueline.stores.redis.address import Address

SETTINGS: Final = (
    "appendonly", "appendfsync", "maxmemory", "maxmemory-policy", "no-appendfsync-on-rewrite",
)  # fmt: skip
"""The settings that decide what a server may lose."""

_HIDDEN: Final = "cannot be known: the server hides its settings (CONFIG GET)"
_POWER: Final = {
    "always": "nothing is lost, if the disk honours flushes",
    "everysec": "the last second may be lost (appendfsync everysec)",
    "no": "the last 30 seconds or more may be lost (appendfsync no)",
}


def check(settings: Mapping[str, str], address: Address) -> None:
    """Refuse a server that would lose acknowledged jobs.

    Raises:
      ConfigError: It evicts keys, or keeps nothing on disk and the URL does not allow that.
    """
    policy = settings.get("maxmemory-policy", "noeviction")
    if policy != "noeviction":
        raise ConfigError(
            f"{address} deletes keys when its memory is full (maxmemory-policy {policy}); jobs "
            "would be lost.",
            hint="Set maxmemory-policy noeviction, or use a server of its own for jobs.",
        )
    if settings.get("appendonly") == "no" and not address.may_lose:
        raise ConfigError(
            f"{address} keeps no append-only file (appendonly no); a restart would lose jobs.",
            hint="Set appendonly yes, or add durability=none to the URL to accept that.",
        )


def settings_in(memory: Mapping[str, str], persistence: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings in sections of INFO, for a server that forbids CONFIG."""
    known = {
        "maxmemory-policy": memory.get("maxmemory_policy"),
        "appendonly": {"0": "no", "1": "yes"}.get(persistence.get("aof_enabled", "")),
    }
    return {name: value for name, value in known.items() if value is not None}


def guarantees(settings: Mapping[str, str]) -> dict[str, str]:
    """Return what survives what."""
    if settings.get("appendonly") == "no":
        lost = "everything since the last snapshot may be lost (appendonly no)"
        return {"survives a process crash": lost, "survives loss of power": lost}
    policy = settings.get("appendfsync")
    return {
        "survives a process crash": "nothing is lost" if "appendonly" in settings else _HIDDEN,
        "survives loss of power": _HIDDEN if policy is None else _POWER.get(policy, policy),
    }
