"""Translates the errors of a server and of its driver, which strips codes from some messages."""

import re
from typing import Final

from redis.exceptions import AskError

from dueline.core.errors import ConfigError, DuelineError, StoreReplaced, StoreUnavailable
from dueline.stores.redis.address import Address

MISSING: Final = "Function not found"
"""Begin of the message for a function that is not loaded."""

UNKNOWN_RUN: Final = "GREET"
"""Begin of the message for a process of the server that was not greeted, see lua/base.lua."""

_SIGNS: Final[tuple[tuple[str, type[DuelineError], str], ...]] = (
    ("REPLACED", StoreReplaced, ("Check the server: FLUSHALL, another database, a restart without "
     "its files. Then start this process again.")),
    ("invalid username-password|[Aa]uthentication required|without any password configured",
     ConfigError, "Check the user and password in the URL."),
    ("[Nn]o permissions|NOPERM", ConfigError, ("Allow this user the command, and the keys of the "
     "prefix (ACL SETUSER).")),
    ("DB index is out of range", ConfigError, "Check the number of the database in the URL."),
    ("read only replica", StoreUnavailable, "It is a read-only replica: connect to the primary."),
    ("used memory > 'maxmemory'", StoreUnavailable, ("The server's memory is full: new jobs are "
     "refused, workers go on. Raise maxmemory, or start more workers.")),
    ("MISCONF", StoreUnavailable, "The server cannot write to its disk: free some space."),
    ("NOREPLICAS|Not enough good replicas", StoreUnavailable, ("Too few replicas are connected "
     "(min-replicas-to-write).")),
    ("loading the dataset|Link with MASTER|TRYAGAIN", StoreUnavailable, "The server is starting."),
    ("cluster is down|[Hh]ash slot not served|non local key", StoreUnavailable, ("A slot of the "
     "cluster has no primary, or moves to another node: see CLUSTER INFO.")),
    ("killed by user", StoreUnavailable, ("An operator ended it (FUNCTION KILL), before it wrote "
     "anything. Repeat it.")),
    ("BUSY", StoreUnavailable, "Another script blocks the server: see SCRIPT KILL."),
    ("cluster support disabled", ConfigError, "It is a single server: use redis://."),
    ("unknown command|FUNCTION", ConfigError, ("Use Redis 7.0 or Valkey, directly: a proxy "
     "or its settings forbid functions.")),
    ("CERTIFICATE_VERIFY_FAILED|[Cc]ertificate", ConfigError, ("Name the file of its authority in "
     "the URL (ca=), and the server as its certificate does.")),
    (UNKNOWN_RUN, StoreUnavailable, "Several primaries answer here: name one of them."),
    ("max number of clients", StoreUnavailable, "Raise maxclients, or run fewer processes."),
    ("WRONGTYPE", ConfigError, "Another program uses these keys: choose another prefix=."),
)  # fmt: skip
"""Parts of messages, the error that they become, and what to do."""


def translated(error: Exception, address: Address) -> DuelineError:
    """Translate an error after which nothing was written."""
    if isinstance(error, AskError):
        return StoreUnavailable(
            f"{address} refuses a call: its slot moves to another node.",
            hint="It is available again when the slot is there.",
        )
    text = (str(error) or type(error).__name__).strip().rstrip(".")
    for sign, kind, hint in _SIGNS:
        if re.search(sign, text):
            return kind(f"{address} refuses a call: {text}.", hint=hint)
    speaks = "speaks TLS, or use redis://" if address.is_tls else "needs no TLS, or use rediss://"
    return StoreUnavailable(
        f"{address} failed: {text}.",
        hint=f"Check that the server is running and reachable, and {speaks}."
        if address.host
        else "Check that the server is running.",
    )
