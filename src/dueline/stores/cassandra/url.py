"""URLs of Cassandra keyspaces; needs no driver."""

import os
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from dueline.core.clock import SECOND_US
from dueline.core.durations import timeout_us
from dueline.core.errors import ConfigError

CONSISTENCIES: Final[Mapping[str, str]] = {"QUORUM": "SERIAL", "LOCAL_QUORUM": "LOCAL_SERIAL"}
"""Serial consistency of conditional writes, by the consistency of other requests."""

OPTIONS: Final = (
    "dc",
    "consistency",
    "remember",
    "timeout",
    "tls",
    "ca",
    "cert",
    "key",
    "name",
    "insecure",
    "password_file",
    "password_env",
    "wake",
)

TIMEOUT_US: Final = 10 * SECOND_US

_PORT: Final = 9042
_KEYSPACE: Final = re.compile(r"[a-z][a-z0-9_]{0,47}")
_TRUTH: Final = {"1": True, "0": False}
_OF_TLS: Final = ("ca", "cert", "key", "name")


@dataclass(frozen=True, slots=True)
class Place:
    """A keyspace and how to connect to it.

    Attributes:
      hosts: Contact points, all with one port.
      keyspace: Name of the keyspace.
      port: Port of every node.
      user: User name; empty for none.
      password: Password of the user.
      dc: The local data centre; may be empty if there is only one.
      consistency: QUORUM, or LOCAL_QUORUM if all clients are in one data centre.
      remember: Whether claims use the cursor cache.
      timeout_us: Time limit of a request.
      tls: TLS settings; None for no TLS.
      name: Name in every node's certificate; empty if it is the node's address.
      wake: Host and port where workers of this process receive wake-ups, an empty host for the one
        that reaches the nodes, and 0 for any port; None for no wake-ups.
    """

    hosts: Sequence[str]
    keyspace: str
    port: int = _PORT
    user: str = ""
    password: str = ""
    dc: str = ""
    consistency: str = "QUORUM"
    remember: bool = True
    timeout_us: int = TIMEOUT_US
    tls: ssl.SSLContext | None = None
    name: str = ""
    wake: tuple[str, int] | None = None

    def __repr__(self) -> str:
        """Return the address without credentials."""
        return f"cassandra://{','.join(self.hosts)}/{self.keyspace}"


def place_of(url: str, options: Mapping[str, str]) -> Place:
    """Parse a URL.

    Args:
      url: `cassandra://[user:password@]host[:port][,host…]/keyspace`.
      options: The query of the URL: `dc`, `consistency`, `remember` (1 or 0), `timeout` (such as
        2s), `password_file` or `password_env` (a file or an environment variable with the
        password), `tls` (1 or 0; 1 unless all hosts are this machine), the files `ca`, `cert` and
        `key` and the certificates' `name` for TLS, `insecure=1` for no TLS between machines, and
        `wake` (auto, HOST, HOST:PORT, or off) for wake-ups between machines.

    Raises:
      ConfigError: The URL is not valid.
    """
    parts = urlsplit(url)
    # An unescaped character in a password may end the host part early.
    is_cut = "@" in parts.query and not set(options) <= set(OPTIONS)
    if parts.fragment or "@" in parts.path or is_cut:
        raise _bad(
            "its user name or password holds a character that must be escaped: "
            "write / as %2F, ? as %3F and # as %23."
        )
    hosts, port = _hosts(parts.netloc.rpartition("@")[2])
    keyspace = parts.path.removeprefix("/")
    if not _KEYSPACE.fullmatch(keyspace):
        raise _bad(
            f"{keyspace!r} is not a keyspace: a lower-case letter, then up to 47 of a-z 0-9 _."
        )
    for name in options:
        if name not in OPTIONS:
            raise _bad(f"it has no option {name!r}, only {', '.join(OPTIONS)}.", hint="Remove it.")
    consistency = options.get("consistency", "QUORUM").upper()
    if consistency not in CONSISTENCIES:
        raise _bad(
            f"consistency is one of {', '.join(CONSISTENCIES)}, not {consistency}.",
            hint="Leave it out; use LOCAL_QUORUM if all clients are in one data centre (dc=NAME).",
        )
    return Place(
        hosts,
        keyspace,
        port,
        user=unquote(parts.username or ""),
        password=_password(unquote(parts.password or ""), options),
        dc=options.get("dc", ""),
        consistency=consistency,
        remember=_truth(options, "remember", default="1"),
        timeout_us=timeout_us(options["timeout"]) if "timeout" in options else TIMEOUT_US,
        tls=_tls(options, hosts),
        name=options.get("name", ""),
        wake=_wake(options.get("wake", "auto")),
    )


def _password(written: str, options: Mapping[str, str]) -> str:
    """Return the password of the URL, or of the file or variable that it names."""
    file, variable = options.get("password_file"), options.get("password_env")
    if (written != "") + (file is not None) + (variable is not None) > 1:
        raise _bad("it has more than one password.")
    if file is not None:
        try:
            return Path(file).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise _bad(f"its password_file {file!r} cannot be read: {error}.") from error
    if variable is not None:
        if variable not in os.environ:
            raise _bad(f"the environment has no variable {variable!r}, its password_env.")
        return os.environ[variable]
    return written


def _hosts(text: str) -> tuple[list[str], int]:
    hosts: list[str] = []
    ports: set[int] = set()
    for node in text.split(","):
        host, _, port = node.partition(":")
        if not host or not (port or "1").isdecimal():
            raise _bad(f"{node!r} is not a host, or a host and a port.")
        hosts.append(host)
        ports |= {int(port)} if port else set()
    if len(ports) > 1:
        raise _bad("all nodes of a cluster listen on one port.")
    return hosts, ports.pop() if ports else _PORT


def _wake(text: str) -> tuple[str, int] | None:
    if text == "off":
        return None
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    host, port = (host, port) if colon else (text, "0")
    if not host or not port.isdecimal() or int(port) >= 2**16:
        raise _bad(f"wake is auto, off, HOST or HOST:PORT, not {text!r}.")
    return ("" if host == "auto" else host.strip("[]"), int(port))


def _tls(options: Mapping[str, str], hosts: Sequence[str]) -> ssl.SSLContext | None:
    """Return TLS settings: for other machines TLS is on unless `insecure=1`."""
    is_insecure = _truth(options, "insecure", default="0")
    is_wanted = any(name in options for name in _OF_TLS)
    is_near = all(map(_is_here, hosts))
    if not _truth(
        options, "tls", default="0" if is_insecure or (is_near and not is_wanted) else "1"
    ):
        if is_wanted:
            raise _bad(f"it has {', '.join(_OF_TLS)} only with TLS.")
        if not is_insecure and not is_near:
            raise _bad("without TLS others can read the traffic; write insecure=1 to allow that.")
        return None
    if is_insecure:
        raise _bad("it has both TLS and insecure=1.")
    files = [options.get(name) for name in ("ca", "cert", "key")]
    try:
        context = ssl.create_default_context(cafile=files[0])
        if files[1]:
            context.load_cert_chain(files[1], files[2])
    except OSError as error:
        raise _bad(f"its certificates cannot be read: {error}.") from error
    return context


def _is_here(host: str) -> bool:
    """Return whether a host is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _truth(options: Mapping[str, str], name: str, *, default: str) -> bool:
    text = options.get(name, default)
    if text not in _TRUTH:
        raise _bad(f"{name} is 1 or 0, not {text!r}.")
    return _TRUTH[text]


_FORM: Final = "Write cassandra://host,host/keyspace, with ?dc=NAME for several data centres."


def _bad(what: str, *, hint: str = _FORM) -> ConfigError:
    return ConfigError(f"The URL of the Cassandra store is not valid: {what}", hint=hint)
