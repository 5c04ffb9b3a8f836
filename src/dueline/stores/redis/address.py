"""The URL of a store in Redis or Valkey."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from dueline.core import durations
from dueline.core.clock import SECOND_US
from dueline.core.errors import ConfigError

PREFIX: Final = "dueline"
"""Default prefix of the store's keys."""

CONNECT_TIMEOUT_S: Final = 5
"""Maximum duration of a connection attempt, in seconds."""

TIMEOUT_US: Final = 10 * SECOND_US
"""Maximum duration of a call, in microseconds; shorter leases shorten it."""

PORT: Final = 6379
SENTINEL_PORT: Final = 26379
SENTINEL: Final = "+sentinel"
CLUSTER: Final = "+cluster"
"""Ends of the schemes of addresses that name sentinels, or nodes of a cluster."""

_PREFIX: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_OPTIONS: Final = {"prefix", "timeout", "durability", "db", "ca", "wait"}
_HINT: Final = (
    "Use redis://user:password@host:6379/0, rediss:// for TLS, unix:///path/redis.sock, or "
    "redis+sentinel://host:26379,host:26379/service/0, or redis+cluster://host:6379,host:6379; "
    "its options are prefix, timeout, durability=none, wait, db (of unix://) and ca (of rediss://)."
)


class Address(NamedTuple):
    """A database of a server, and the prefix of the store's keys in it.

    Attributes:
      settings: Arguments of the driver's connection, with the password; never shown.
      shown: The URL without user, password and options.
      prefix: The prefix, without braces.
      host, port: The server; an empty host for a socket.
      is_tls: Whether the connection is encrypted.
      may_lose: Whether a server that keeps nothing on disk is accepted.
      timeout_us: Time limit of a call; None for the default, which follows the shortest lease.
      wait: Number of replicas that confirm each write.
      sentinels: Hosts and ports of the sentinels that know the server; then `host` is theirs.
      service: The name under which they know it.
      nodes: Hosts and ports of some nodes of a cluster; then `host` is that of the first.
    """

    settings: Mapping[str, Any]
    shown: str
    prefix: str
    host: str = ""
    port: int = PORT
    is_tls: bool = False
    may_lose: bool = False
    timeout_us: int | None = None
    wait: int = 0
    sentinels: tuple[tuple[str, int], ...] = ()
    service: str = ""
    nodes: tuple[tuple[str, int], ...] = ()

    def __repr__(self) -> str:
        """Return the address without credentials."""
        return self.shown


def address_of(url: str, options: Mapping[str, str]) -> Address:
    """Parse a URL.

    Args:
      url: `redis://[user[:password]@]host[:port][/database]`, or `valkey://`; `rediss://` or
        `valkeys://` with TLS; `unix:///path` for a socket;
        `redis+sentinel://host[:port][,host…]/service[/database]`, with any of these schemes;
        `redis+cluster://host[:port][,host…]` in the same way.
      options: The query of the URL: `prefix` of the keys, `timeout` (such as 2s),
        `durability=none` for a server that keeps nothing on disk, `wait`, the number of replicas
        that confirm each write, `db` with a socket, and `ca`, the file of the authority that signed
        the server's certificate.

    Raises:
      ConfigError: The URL is not valid.
    """
    parts = urlsplit(url)
    is_socket, has_sentinels = parts.scheme == "unix", parts.scheme.endswith(SENTINEL)
    has_nodes = parts.scheme.endswith(CLUSTER)
    several = has_sentinels or has_nodes
    path = parts.path.strip("/")
    service, _, path = path.partition("/") if has_sentinels else ("", "", path)
    try:
        default = SENTINEL_PORT if has_sentinels else PORT
        servers = () if is_socket else _servers(parts.netloc, default, several=several)
        database = int((options.get("db") if is_socket else path) or 0)
        wait = int(options.get("wait", 0))
    except ValueError as error:
        raise _invalid("its port, database and `wait` are numbers") from error
    _check(options, wait)
    if has_sentinels and not service:
        raise _invalid("it does not say under which name the sentinels know the server")
    if has_nodes and database:
        raise _invalid("a cluster has database 0 only")
    if "://" not in url or parts.fragment or (is_socket and not parts.path):
        raise _invalid("a part is missing, or / ? # @ in a password are not escaped")
    prefix = options.get("prefix", PREFIX)
    settings: dict[str, Any] = {
        "db": database,
        "username": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password) if parts.password else None,
    }
    is_tls = parts.scheme.partition("+")[0] in ("rediss", "valkeys")
    if is_tls:
        settings["ssl_check_hostname"] = True  # the default of redis-py 5 is False
    host, port = servers[0] if servers else ("", PORT)
    if is_socket:
        settings["path"] = unquote(parts.path)
    elif not several:
        settings |= {"host": host, "port": port}
    if is_tls and "ca" in options:
        if not Path(options["ca"]).is_file():
            raise _invalid(f"there is no file {options['ca']} (ca=)")
        settings["ssl_ca_certs"] = options["ca"]
    named = ",".join(f"{host}:{port}" for host, port in servers)
    last = "" if has_nodes else str(database)
    place = parts.path if is_socket else "/".join(filter(None, (named, service, last)))
    suffix = "" if prefix == PREFIX else f"?prefix={prefix}"
    return Address(
        settings,
        f"{parts.scheme}://{place}{suffix}",
        prefix,
        host,
        port,
        is_tls,
        may_lose="durability" in options,
        timeout_us=durations.timeout_us(options["timeout"]) if "timeout" in options else None,
        wait=wait,
        sentinels=servers if has_sentinels else (),
        service=unquote(service),
        nodes=servers if has_nodes else (),
    )


def _check(options: Mapping[str, str], wait: int) -> None:
    """Refuse options that are not valid, wherever the server is."""
    if unknown := sorted(options.keys() - _OPTIONS):
        raise _invalid(f"it has the unknown option {unknown[0]!r}")
    if options.get("durability", "none") != "none":
        raise _invalid("`durability` can only be none")
    if "wait" in options and wait < 1:
        raise _invalid("`wait` is at least 1")
    if not _PREFIX.fullmatch(options.get("prefix", PREFIX)):
        raise _invalid("`prefix` takes up to 64 of A-Z a-z 0-9 _ . : -")


def _servers(netloc: str, port: int, *, several: bool) -> tuple[tuple[str, int], ...]:
    """Return the hosts of a URL, and their ports or this one."""
    places = netloc.rpartition("@")[2]
    split = [urlsplit(f"//{place}") for place in (places.split(",") if several else [places])]
    return tuple((part.hostname or "localhost", part.port or port) for part in split)


def _invalid(why: str) -> ConfigError:
    return ConfigError(f"The URL of the Redis store is not valid: {why}.", hint=_HINT)
