"""The URL of a PostgreSQL store."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from dueline.core import durations
from dueline.core.clock import SECOND_US
from dueline.core.errors import ConfigError

SCHEMA: Final = "dueline"
"""Default name of the schema that has the tables."""

CONNECT_TIMEOUT_S: Final = 5
"""Default time limit of a connection attempt, in seconds."""

TIMEOUT_US: Final = 10 * SECOND_US
"""Default time limit of a trip to the server, in microseconds."""

_KEEPALIVES: Final = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
"""Parameters of libpq, in seconds: an idle connection to a dead machine is closed after 11 s."""

_SCHEMA: Final = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")


class Address(NamedTuple):
    """A database and a schema in it.

    Attributes:
      conninfo: The URL for the driver, with the password; never shown.
      schema: Name of the schema.
      shown: The URL without user, password and options.
      timeout_us: Time limit of a trip to the server; None for the default, which follows the
        shortest lease.
    """

    conninfo: str
    schema: str
    shown: str
    timeout_us: int | None = None

    def __repr__(self) -> str:
        """Return the address without credentials."""
        return self.shown


def address_of(url: str, options: Mapping[str, str]) -> Address:
    """Parse a URL.

    Args:
      url: `postgresql://[user[:password]@]host[:port][,host…]/database`, or `postgres://`.
      options: The query of the URL: `schema`, `timeout` (such as 2s), and the parameters of libpq,
        such as `sslmode`.

    Raises:
      ConfigError: The URL is not valid.
    """
    parts = urlsplit(url)
    if "://" not in url:
        raise ConfigError(
            f"{url!r} is not a valid PostgreSQL URL.",
            hint="Use postgresql://user:password@host/database.",
        )
    schema = options.get("schema", SCHEMA)
    if not _SCHEMA.fullmatch(schema):
        raise ConfigError(
            f"{schema!r} is not the name of a schema.",
            hint="Use a lower-case letter, then up to 62 of a-z 0-9 _; not pg_.",
        )
    if parts.fragment or "@" in parts.path or "@" in parts.query:
        raise ConfigError(
            "The URL of the PostgreSQL store is not valid: its user name or password holds a "
            "character that must be escaped.",
            hint="Write / as %2F, ? as %3F, # as %23 and @ as %40.",
        )
    rest = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True)
            if name not in ("schema", "timeout")]  # fmt: skip
    timeout_us = durations.timeout_us(options["timeout"]) if "timeout" in options else None
    defaults = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "application_name": "dueline",
        "tcp_user_timeout": (timeout_us or TIMEOUT_US) // 1000,
        **_KEEPALIVES,
    }
    rest += [(name, str(value)) for name, value in defaults.items() if name not in options]
    query = urlencode(rest, quote_via=quote)
    conninfo = urlunsplit(("postgresql", parts.netloc, parts.path, query, ""))
    hosts = parts.netloc.rpartition("@")[2]
    suffix = "" if schema == SCHEMA else f"?schema={schema}"
    return Address(conninfo, schema, f"postgresql://{hosts}{parts.path}{suffix}", timeout_us)
