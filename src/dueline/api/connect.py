"""From an address to a store, and to the engine on it.

Only the store that is named is loaded: that takes longer than all else here.
"""

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from dueline.core.clock import SECOND_US, Clock, SystemClock
from dueline.core.errors import ConfigError
from dueline.core.ids import Ids
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Store
from dueline.core.wakeup import LocalWakeups, NoWakeups, Wakeups
from dueline.jobs.history_recorder import open_engine
from dueline.jobs.queue import Queues

SCHEMES = ("memory", "sqlite", "cassandra")

EXTRA_STORES: dict[str, Callable[[Clock], Store]] = {}
"""Constructors of further stores by URL, which tests register."""

_WITHOUT_LOGIN = ("memory:", "sqlite:")
_USER = re.compile(r"([a-z][a-z0-9+.-]*://+)?+[^:/]*:")


def open_store(url: str, *, clock: Clock | None = None) -> Store:
    """Make the store that an address names; it connects at its first call.

    Args:
      url: `memory://`; `sqlite:///folder/file.db` (relative to the current folder) or
        `sqlite:////absolute/file.db`, with `?synchronous=NORMAL` for speed at the price of the
        last commits when power fails, and `&shared_folder=allow` for a folder that every user
        may write to; `cassandra://host,host/keyspace`, with options such as
        `?dc=` and `&consistency=` (stores/cassandra/url.py).
      clock: the machine's clock; the system's own by default.

    Raises:
      ConfigError: no such kind of store, or an option that it does not have.
    """
    parts = split_address(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if url in EXTRA_STORES:
        return EXTRA_STORES[url](clock or SystemClock())
    if parts.scheme == "memory" and not options:
        return _memory(clock or SystemClock())
    if parts.scheme == "sqlite":
        return _sqlite(url, unquote(parts.path), options, clock or SystemClock())
    if parts.scheme == "cassandra":
        return _cassandra(url, options, clock or SystemClock())
    raise ConfigError(
        f"No store is known by the address {mask(url)!r}.",
        hint=f"Use one of {', '.join(f'{scheme}://' for scheme in SCHEMES)}, such as "
        "sqlite:///jobs.db.",
    )


def _memory(clock: Clock) -> Store:
    from dueline.stores.memory.store import MemoryStore  # noqa: PLC0415  (see above)

    return MemoryStore(clock)


def _sqlite(url: str, path: str, options: dict[str, str], clock: Clock) -> Store:
    synchronous = options.pop("synchronous", "FULL").upper()
    shared = options.pop("shared_folder", "refuse")
    is_known = synchronous in ("FULL", "NORMAL") and shared in ("refuse", "allow")
    if options or not is_known or len(path) < len("/x"):
        raise ConfigError(
            f"The address {url!r} is not one of an SQLite queue.",
            hint="Write sqlite:///jobs.db; its options are synchronous=FULL or NORMAL, and "
            "shared_folder=refuse or allow.",
        )
    from dueline.stores.sqlite.store import SqliteStore  # noqa: PLC0415  (see above)

    return SqliteStore(
        Path(path[1:]), clock=clock, synchronous=synchronous, may_be_shared=shared == "allow"
    )


def open_wakeups(url: str, *, clock: Clock) -> Wakeups:
    """Make what wakes the workers of the store that an address names; it must be a store's.

    Memory's workers are in this process, SQLite's on this machine; Cassandra's cannot be reached.
    """
    parts = split_address(url)
    if parts.scheme == "memory":
        return LocalWakeups()
    if parts.scheme == "sqlite":
        from dueline.stores.sqlite.wakeup import SocketWakeups  # noqa: PLC0415  (see above)

        return SocketWakeups(Path(unquote(parts.path)[1:]).absolute(), clock=clock)
    return NoWakeups()


def open_queues(url: str, store: Store, *, clock: Clock) -> Queues:
    """Make the engine on a store, the one that the address names."""
    wakeups = open_wakeups(url, clock=clock)
    return Queues(
        open_engine(store, clock=clock, ids=Ids(), defaults=queue_defaults(url), wakeups=wakeups)
    )


def _cassandra(url: str, options: dict[str, str], clock: Clock) -> Store:
    from dueline.stores.cassandra.url import place_of  # noqa: PLC0415  (see above)

    place = place_of(url, options)
    try:
        from dueline.stores.cassandra.store import CassandraStore  # noqa: PLC0415  (an extra)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "cassandra":
            raise
        raise ConfigError(
            "The Cassandra driver is not installed.", hint="pip install 'dueline[cassandra]'"
        ) from error
    return CassandraStore(place, clock=clock)


def split_address(url: str) -> SplitResult:
    """Split an address into its parts.

    Raises:
      ConfigError: it is not an address, such as one with a lone bracket.
    """
    try:
        return urlsplit(url)
    except ValueError as error:
        raise ConfigError(
            f"{mask(url)!r} is not a store's address: {error}.",
            hint="In a user name or password write [ as %5B and ] as %5D.",
        ) from error


def mask(url: str) -> str:
    """Hide the password of an address, so that the address can be shown.

    The text is not parsed: also an address that is wrong must not show its password. All
    between the user's name and the last `@` is hidden.
    """
    login, at, place = url.rpartition("@")
    user = _USER.match(login)
    if not at or user is None or url.startswith(_WITHOUT_LOGIN):
        return url
    return f"{user[0]}***@{place}"


def queue_defaults(url: str) -> QueueSettings:
    """Tell what a new queue of this store is set to."""
    if split_address(url).scheme == "cassandra":  # lanes stay small: 24,000 jobs/s fill 30,000 rows
        return QueueSettings(shards=8, shards_read=8, width_us=10 * SECOND_US)
    return QueueSettings()
