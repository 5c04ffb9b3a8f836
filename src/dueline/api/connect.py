"""Store URLs.

Only the store that a URL names is imported, because imports take most of the time here.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from dueline.core.blobs import Blobs, own_namespace
from dueline.core.clock import SECOND_US, Clock, SystemClock
from dueline.core.durations import timeout_us
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, ConfigError
from dueline.core.ids import Ids
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Store
from dueline.core.store_capabilities import SendsWakeups
from dueline.core.wakeup import LocalWakeups, NoWakeups, Wakeups
from dueline.jobs.history_recorder import open_engine
from dueline.jobs.queue import Queues

SCHEMES = ("memory", "sqlite", "postgresql", "cassandra", "redis")

EXTRA_STORES: dict[str, Callable[[Clock], Store]] = {}
"""Constructors of further stores by URL, which tests register."""

_WITHOUT_LOGIN = ("memory:", "sqlite:")
_USER = re.compile(r"([a-z][a-z0-9+.-]*://+)?+[^:/]*:")


def open_store(url: str, *, clock: Clock | None = None) -> Store:
    """Return the store of a URL; it connects at its first call.

    Args:
        url: `memory://`; `sqlite:///folder/file.db` (relative) or `sqlite:////absolute/file.db`,
            with `?synchronous=NORMAL` for speed at the risk of losing the last commits on a power
            failure, `&shared_folder=allow` for a folder that every user may write to,
            `&mode=0660` for a file that the users of a group share, `&timeout=2s` for how long
            calls wait for the disk and for other writers, and `&reserve=64` for the MiB of the disk
            that new jobs leave to claims and outcomes;
            `postgresql://user:password@host/database`, with `?schema=` and the parameters of libpq
            (stores/postgres/address.py);
            `cassandra://host,host/keyspace`, with options such as `?dc=` and `&consistency=`
            (stores/cassandra/url.py);
            `redis://user:password@host/0`, `rediss://`, `unix:///socket`, `valkey://`,
            `redis+sentinel://host,host/service/0` or `redis+cluster://host,host`, with `?prefix=`,
            `&wait=` and other options (stores/redis/address.py).
        clock: The machine's clock; by default the system's.

    Raises:
        ConfigError: The store or an option is unknown.
    """
    parts = split_address(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if url in EXTRA_STORES:
        return EXTRA_STORES[url](clock or SystemClock())
    if parts.scheme == "memory" and not options:
        return _memory(clock or SystemClock())
    if parts.scheme == "sqlite":
        return _sqlite(url, options, clock or SystemClock())
    if parts.scheme in ("postgresql", "postgres"):
        return _postgres(url, options, clock or SystemClock())
    if parts.scheme == "cassandra":
        return _cassandra(url, options, clock or SystemClock())
    kind = parts.scheme.removesuffix("+sentinel").removesuffix("+cluster")
    if kind in ("redis", "rediss", "unix", "valkey", "valkeys"):
        return _redis(url, options, clock or SystemClock())
    raise ConfigError(
        f"The store URL {mask(url)!r} has an unknown scheme.",
        hint=f"Use one of {', '.join(f'{scheme}://' for scheme in SCHEMES)}, such as "
        "sqlite:///jobs.db.",
    )


def _memory(clock: Clock) -> Store:
    from dueline.stores.memory.store import MemoryStore  # noqa: PLC0415  (see above)

    return MemoryStore(clock)


def sqlite_path(url: str) -> Path:
    """Return the file of an SQLite URL, in any of its spellings.

    `sqlite:///a.db`, `sqlite://a.db` and `sqlite:a.db` are relative, `sqlite:////a.db` and
    `sqlite:/a.db` are absolute.

    Raises:
      ConfigError: The URL names no file.
    """
    parts = split_address(url)
    path = parts.netloc + parts.path
    if "#" in url:
        raise ConfigError(
            f"{url!r} is not a valid SQLite URL.", hint="In the name of a file, write # as %23."
        )
    if url.startswith("sqlite:///"):
        path = path[1:]
    path = unquote(path)
    if path == ":memory:":
        raise ConfigError(
            f"{url!r} is not a file.", hint="Use memory:// for a store in this process."
        )
    if not path or path.endswith("/"):
        raise ConfigError(f"{url!r} is not a valid SQLite URL.", hint=_SQLITE_HINT)
    try:
        return Path(path).expanduser()
    except RuntimeError as error:  # no such user
        raise ConfigError(
            f"{url!r} is not a valid SQLite URL: {error}.", hint=_SQLITE_HINT
        ) from error


def missing_file(url: str) -> Path | None:
    """Return the file of an SQLite store that does not exist yet; None for any other store."""
    if url in EXTRA_STORES or split_address(url).scheme != "sqlite":
        return None
    path = sqlite_path(url)
    try:
        path.stat()
    except FileNotFoundError:
        return path
    except OSError:  # the store says what is wrong
        return None
    return None


def in_folder(url: str, folder: Path) -> str:
    """Return a store's URL; that of a relative SQLite file is relative to a folder.

    Raises:
        ConfigError: The URL names no file.
    """
    if split_address(url).scheme != "sqlite" or (path := sqlite_path(url)).is_absolute():
        return url
    name = str(folder.absolute() / path).replace("%", "%25").replace("#", "%23").replace("?", "%3F")
    _, mark, options = url.partition("?")
    return f"sqlite:///{name}{mark}{options}"


def shared_url(url: str) -> str:
    """Return the URL by which processes in any folder open the same store.

    Raises:
        ConfigError: The store exists in this process only, or the URL names no file.
    """
    if split_address(url).scheme == "memory":
        raise ConfigError(
            "A memory store exists in one process; other processes cannot open it.",
            hint="Use sqlite:///jobs.db, or a store on a server.",
        )
    return in_folder(url, Path.cwd())


def check_exists(url: str) -> None:
    """Check that the file of a store exists, if it is in SQLite.

    Raises:
        ConfigError: It does not.
    """
    if (path := missing_file(url)) is not None:
        raise ConfigError(
            f"There is no store at {path}.",
            hint="Check the address. `dueline init` or the first job creates the file.",
        )


def open_existing(url: str) -> Store:
    """Return the store of a URL, but create no file.

    Raises:
        ConfigError: There is no such file or kind of store.
    """
    check_exists(url)
    return open_store(url)


@contextmanager
def existing_engine(url: str) -> Iterator[Engine]:
    """Open an existing store for the duration of a block.

    Yields:
        The engine on the store.

    Raises:
        ConfigError: There is no such file or kind of store.
    """
    with closing(open_existing(url)) as store:
        yield open_queues(url, store, clock=SystemClock()).engine


def copy_file(url: str, other: Path, *, restores: bool) -> int:
    """Copy the file of an SQLite store to another file, or that file to the store.

    Returns: the size in bytes.

    Raises:
      BadInput: The store is not an SQLite file. Others: as `backup.copy_checked`.
    """
    if split_address(url).scheme != "sqlite":
        raise BadInput(
            f"{mask(url)} is not a SQLite file.", hint="Back it up with the tools of its server."
        )
    from dueline.stores.sqlite.backup import copy_checked  # noqa: PLC0415  (see above)

    own = sqlite_path(url)
    return copy_checked(other, own) if restores else copy_checked(own, other)


_SQLITE_HINT = (
    "Use sqlite:///jobs.db; its options are synchronous=FULL or NORMAL, "
    "shared_folder=refuse or allow, mode=0600 or 0660, timeout=10s, and reserve=64 (MiB)."
)
_MIB = re.compile(r"[0-9]{1,7}")
_SQLITE_MODES = {"0600": 0o600, "0660": 0o660}


def _sqlite(url: str, options: dict[str, str], clock: Clock) -> Store:
    path = sqlite_path(url)
    synchronous = options.pop("synchronous", "FULL").upper()
    shared = options.pop("shared_folder", "refuse")
    timeout = options.pop("timeout", None)
    reserve = options.pop("reserve", None)
    mode = _SQLITE_MODES.get(options.pop("mode", "0600"))
    is_known = synchronous in ("FULL", "NORMAL") and shared in ("refuse", "allow")
    is_known &= reserve is None or _MIB.fullmatch(reserve) is not None
    if options or not is_known or mode is None:
        raise ConfigError(f"{url!r} is not a valid SQLite URL.", hint=_SQLITE_HINT)
    from dueline.stores.sqlite.store import SqliteStore  # noqa: PLC0415  (see above)

    return SqliteStore(
        path,
        clock=clock,
        synchronous=synchronous,
        may_be_shared=shared == "allow",
        mode=mode,
        timeout_us=None if timeout is None else timeout_us(timeout),
        reserve_mib=None if reserve is None else int(reserve),
    )


def open_wakeups(url: str, store: Store, *, clock: Clock) -> Wakeups:
    """Return the wake-ups for the workers of a store.

    They reach workers in this process (memory), on this machine (SQLite), or on other machines
    (PostgreSQL, and Cassandra without the option `wake=off`).
    """
    if isinstance(store, SendsWakeups):
        return store.wakeups()
    parts = split_address(url)
    if parts.scheme == "memory":
        return LocalWakeups()
    if parts.scheme == "sqlite":
        from dueline.stores.sqlite.wakeup import SocketWakeups  # noqa: PLC0415  (see above)

        mode = dict(parse_qsl(parts.query)).get("mode", "0600")
        return SocketWakeups(sqlite_path(url).absolute(), clock=clock, mode=_SQLITE_MODES[mode])
    if parts.scheme == "cassandra":
        from dueline.stores.cassandra.url import place_of  # noqa: PLC0415  (see above)

        place = place_of(url, dict(parse_qsl(parts.query, keep_blank_values=True)))
        if place.wake is not None:
            from dueline.coordination.worker_registry import registrations  # noqa: PLC0415  (see above)
            from dueline.stores.cassandra.wakeup import (  # noqa: PLC0415  (see above)
                Address,
                NetworkWakeups,
                RegisteredWorker,
            )

            def workers() -> list[RegisteredWorker]:
                return [
                    RegisteredWorker(worker.worker, worker.queues, worker.address)
                    for worker, _ in registrations(store)
                ]

            address = Address(*place.wake, place.hosts[0])
            return NetworkWakeups(store, workers, address, clock=clock)
    return NoWakeups()


def open_queues(url: str, store: Store, *, clock: Clock, blobs: Blobs | None = None) -> Queues:
    """Return the queues of an open store with this URL."""
    wakeups = open_wakeups(url, store, clock=clock)
    engine = open_engine(
        store, clock=clock, ids=Ids(), defaults=queue_defaults(url), wakeups=wakeups
    )
    if blobs is not None:
        blobs.namespace = own_namespace(store, engine.ids)
        engine = replace(engine, blobs=blobs)
    return Queues(engine)


def _postgres(url: str, options: dict[str, str], clock: Clock) -> Store:
    from dueline.stores.postgres.address import address_of  # noqa: PLC0415  (see above)

    address = address_of(url, options)
    with _driver("PostgreSQL", "psycopg", extra="postgres"):
        from dueline.stores.postgres.store import PostgresStore  # noqa: PLC0415  (an extra)
    return PostgresStore(address, clock=clock)


def _cassandra(url: str, options: dict[str, str], clock: Clock) -> Store:
    from dueline.stores.cassandra.url import place_of  # noqa: PLC0415  (see above)

    place = place_of(url, options)
    with _driver("Cassandra", "cassandra", extra="cassandra"):
        from dueline.stores.cassandra.store import CassandraStore  # noqa: PLC0415  (an extra)
    return CassandraStore(place, clock=clock)


def _redis(url: str, options: dict[str, str], clock: Clock) -> Store:
    from dueline.stores.redis.address import address_of  # noqa: PLC0415  (see above)

    address = address_of(url, options)
    with _driver("Redis", "redis", extra="redis"):
        from dueline.stores.redis.store import RedisStore  # noqa: PLC0415  (an extra)
    return RedisStore(address, clock=clock)


@contextmanager
def _driver(database: str, package: str, *, extra: str) -> Iterator[None]:
    """Raise ConfigError if an import in the block misses the driver of a database."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise ConfigError(
            f"The {database} driver is not installed.", hint=f"pip install 'dueline[{extra}]'"
        ) from error


def split_address(url: str) -> SplitResult:
    """Split a URL into its parts.

    Raises:
      ConfigError: the URL is invalid, for example because of a single bracket.
    """
    try:
        return urlsplit(url)
    except ValueError as error:
        raise ConfigError(
            f"{mask(url)!r} is not a valid store URL: {error}.",
            hint="In a user name or password, use %5B for [ and %5D for ].",
        ) from error


def mask(url: str) -> str:
    """Return a URL without its password.

    The URL is not parsed, because an invalid one must not show its password either. Everything
    between the user name and the last `@` is hidden.
    """
    login, at, place = url.rpartition("@")
    user = _USER.match(login)
    if not at or user is None or url.startswith(_WITHOUT_LOGIN):
        return url
    return f"{user[0]}***@{place}"


def queue_defaults(url: str) -> QueueSettings:
    """Return the settings of new queues of a store."""
    if split_address(url).scheme == "cassandra":  # small lanes: 24,000 jobs/s fill 30,000 rows
        return QueueSettings(shards=8, shards_read=8, width_us=10 * SECOND_US)
    return QueueSettings()
