"""Where a Cassandra keyspace is.

Needs no driver, so that an address can be judged without one.
"""

import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from dueline.errors import ConfigError

CONSISTENCIES: Final[Mapping[str, str]] = {"QUORUM": "SERIAL", "LOCAL_QUORUM": "LOCAL_SERIAL"}
"""At which level conditional writes are decided, by the level of all else."""

OPTIONS: Final = ("dc", "consistency", "remember", "tls", "ca", "cert", "key")

_PORT: Final = 9042
_KEYSPACE: Final = re.compile(r"[a-z][a-z0-9_]{0,47}")
_TRUTH: Final = {"1": True, "0": False}


@dataclass(frozen=True, slots=True)
class Place:
    """A keyspace, and how it is reached.

    hosts: addresses to begin with, all with one port. dc: the data centre whose nodes are
    asked; may be empty where there is only one. consistency: QUORUM, or LOCAL_QUORUM where
    every client of the keyspace is in one data centre. tls: None for none.
    remember: keep a claimer's memory of lanes.
    """

    hosts: Sequence[str]
    keyspace: str
    port: int = _PORT
    user: str = ""
    password: str = ""
    dc: str = ""
    consistency: str = "QUORUM"
    tls: ssl.SSLContext | None = None
    remember: bool = True

    def __repr__(self) -> str:
        """Show where it is; never how to get in."""
        return f"cassandra://{','.join(self.hosts)}/{self.keyspace}"


def place_of(url: str, options: Mapping[str, str]) -> Place:
    """Read an address.

    Args:
      url: `cassandra://[user:password@]host[:port][,host…]/keyspace`.
      options: what follows the question mark: `dc`, `consistency`, `remember` (1 or 0),
        `tls` (1 or 0), and the files `ca`, `cert` and `key` where TLS needs them.

    Raises: ConfigError: something in it cannot be.
    """
    parts = urlsplit(url)
    hosts, port = _hosts(parts.netloc.rpartition("@")[2])
    keyspace = parts.path.removeprefix("/")
    if not _KEYSPACE.fullmatch(keyspace):
        raise _bad(
            f"{keyspace!r} is not a keyspace: a lower-case letter, then up to 47 of a-z 0-9 _."
        )
    for name in options:
        if name not in OPTIONS:
            raise _bad(f"it has no option {name!r}, only {', '.join(OPTIONS)}.")
    consistency = options.get("consistency", "QUORUM").upper()
    if consistency not in CONSISTENCIES:
        raise _bad(f"consistency is one of {', '.join(CONSISTENCIES)}, not {consistency}.")
    return Place(
        hosts,
        keyspace,
        port,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        dc=options.get("dc", ""),
        consistency=consistency,
        tls=_tls(options),
        remember=_truth(options, "remember", default="1"),
    )


def _hosts(text: str) -> tuple[list[str], int]:
    hosts: list[str] = []
    ports: set[int] = set()
    for one in text.split(","):
        host, _, port = one.partition(":")
        if not host or not (port or "1").isdecimal():
            raise _bad(f"{one!r} is not a host, or a host and a port.")
        hosts.append(host)
        ports |= {int(port)} if port else set()
    if len(ports) > 1:
        raise _bad("all nodes of a cluster listen on one port.")
    return hosts, ports.pop() if ports else _PORT


def _tls(options: Mapping[str, str]) -> ssl.SSLContext | None:
    files = [options.get(name) for name in ("ca", "cert", "key")]
    if not _truth(options, "tls", default="1" if any(files) else "0"):
        return None
    try:
        context = ssl.create_default_context(cafile=files[0])
        if files[1]:
            context.load_cert_chain(files[1], files[2])
    except OSError as error:
        raise _bad(f"its certificates cannot be read: {error}.") from error
    # Nodes name each other by address, which their certificates seldom hold.
    context.check_hostname = False
    return context


def _truth(options: Mapping[str, str], name: str, *, default: str) -> bool:
    text = options.get(name, default)
    if text not in _TRUTH:
        raise _bad(f"{name} is 1 or 0, not {text!r}.")
    return _TRUTH[text]


def _bad(what: str) -> ConfigError:
    return ConfigError(
        f"The address of the Cassandra store is wrong: {what}",
        hint="Write cassandra://host,host/keyspace, with ?dc=NAME if there are several.",
    )
