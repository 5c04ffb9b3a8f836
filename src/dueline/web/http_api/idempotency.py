"""Idempotency-Key: a repeated request returns the jobs of the first.

The jobs of a request get unique keys, made from its key, which they hold for a day in the mode
"existing". A record of the request's digest, written before them, recognizes another request with
the same key. What makes no jobs by itself, such as a fork, is done once, and its answer is kept.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Final, NamedTuple

from dueline.core.call_options import Unique
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, Conflict, NotFound
from dueline.core.pagination import record_at
from dueline.core.store import NO_VERSION, Delete, Put

KEY_CHARACTERS_MAX: Final = 255
KEPT_US: Final = DAY_US
_PARTITION: Final = "http-keys"


class KeyReused(Exception):
    """The Idempotency-Key belongs to another request; nothing was written."""


class Key(NamedTuple):
    """The key of one request. digest: of the key and its sender. is_new: it was not seen before."""

    digest: str
    is_new: bool

    def unique(self, number: int = 0) -> Unique:
        """Return the unique key of one of the request's jobs."""
        within_s = KEPT_US / SECOND_US
        return Unique(f"http:{self.digest}:{number}", within=within_s, mode="existing")


@contextmanager
def request_key(engine: Engine, key: str, *, sender: str, body: bytes) -> Iterator[Key]:
    """Record the key of a request, unless the block finds that the request is invalid.

    Args:
        engine: The engine.
        key: The key.
        sender: Who sends the request: others have keys of their own.
        body: The body.

    Raises:
        KeyReused: The key was used with another body.
        BadInput: The key is not a printable string of 1 to 255 characters.
    """
    if not (0 < len(key) <= KEY_CHARACTERS_MAX and key.isascii() and key.isprintable()):
        raise BadInput(
            "An Idempotency-Key has 1 to 255 printable ASCII characters.", hint="Use a UUID."
        )
    digest = sha256(f"{sender}\0{key}".encode()).hexdigest()
    partition = f"{_PARTITION}/{digest[:2]}"
    value = sha256(body).digest()
    expires_us = engine.time.latest_us() + KEPT_US
    version = engine.ids.token()
    put = Put(digest, version, value, expect=NO_VERSION, expires_us=expires_us)
    is_new = engine.store.commit(partition, (put,))
    if not is_new and _known(engine, partition, digest) != value:
        raise KeyReused
    try:
        yield Key(digest[:40], is_new)
    except (BadInput, Conflict, NotFound):
        if is_new:  # nothing was stored: the corrected request may have the same key
            engine.store.commit(partition, (Delete(digest, expect=version),))
        raise


def once(
    engine: Engine, key: str | None, *, sender: str, request: bytes, act: Callable[[], str]
) -> str:
    """Return what a request gives that is done once for each key; without a key, each time.

    Raises:
        KeyReused: The key was used with another request.
        BadInput: The key is invalid.
        Conflict: An earlier request with the key has given no answer; nothing was done.
    """
    if key is None:
        return act()
    with request_key(engine, key, sender=sender, body=request) as used:
        place = f"{_PARTITION}/answers/{used.digest[:2]}"
        if used.is_new:
            answer = act()
            expires_us = engine.time.latest_us() + KEPT_US
            put = Put(used.digest, engine.ids.token(), answer.encode(), expires_us=expires_us)
            engine.store.commit(place, (put,))
            return answer
    record = record_at(engine.store, place, used.digest)
    if record is None:
        raise Conflict(
            "A request with this Idempotency-Key has begun, and has not answered.",
            hint="If its server has died, look for what it made; then use a new key.",
        )
    return record.value.decode()


def _known(engine: Engine, partition: str, digest: str) -> bytes:
    for record in engine.store.read(partition, after=digest[:-1], limit=16):
        if record.key == digest:
            return record.value
    raise Conflict("The Idempotency-Key is changing.", hint="Send the request again.")
