"""Time-ordered ids, random tokens."""

import os
import threading
from collections.abc import Callable, Iterable
from hashlib import sha1
from itertools import repeat
from struct import iter_unpack
from typing import Any

from dueline.core.job import JobId, Token
from dueline.core.system import at_fork

_TAIL_BITS = 62
_VARIANT = 0b10 << _TAIL_BITS
_VERSION = 7 << 76
_MILLISECOND_US = 1000
_NAMED_VERSION = (5 << 76) | (0b10 << 62)
_NAMED_REST = ~((0xF << 76) | (0b11 << 62))
_DIGEST = 20  # bytes
_VERSION_BYTES = bytes(0x50 | byte & 0xF for byte in range(256))  # what a byte becomes
_VARIANT_BYTES = bytes(0x80 | byte & 0x3F for byte in range(256))


class Ids:
    """Creates UUIDv7 ids that only grow within a process, and random tokens.

    Layout (RFC 9562): 48 bits of milliseconds, version, 12 bits of the millisecond's
    fraction, variant, 62 bits that start at fresh randomness for each batch and then count.
    A fork restarts from fresh randomness, so parent and child never create the same id (rule E1).

    Args: randomness: returns this number of random bytes.
    """

    def __init__(self, randomness: Callable[[int], bytes] = os.urandom) -> None:
        self._randomness = randomness
        self._lock = threading.Lock()
        self._last = 0
        at_fork(after_in_child=self._restart)

    def _restart(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def many(self, count: int, now_us: int) -> list[JobId]:
        """Return ids in growing order.

        Args: count: number of ids. now_us: their timestamp, microseconds UTC.
        """
        millisecond, rest_us = divmod(now_us, _MILLISECOND_US)
        fraction = rest_us * 4096 // _MILLISECOND_US
        head = (millisecond << 80) | _VERSION | (fraction << 64) | _VARIANT
        # One bit of the tail stays clear, so that counting never reaches the variant bits.
        tail = int.from_bytes(self._randomness(8)) >> (64 - _TAIL_BITS + 1)
        with self._lock:
            first = max(head | tail, self._last + 1)
            self._last = first + count - 1
        made: Iterable[Any] = map(int.to_bytes, range(first, first + count), repeat(16))
        return list(made)

    def one(self, now_us: int) -> JobId:
        """Return one id with the timestamp `now_us`."""
        return self.many(1, now_us)[0]

    def token(self) -> Token:
        """Return the token of a claim: 128 random bits."""
        return Token(self._randomness(16))


def created_us(job_id: JobId) -> int:
    """Return the timestamp of an id, to the millisecond, in microseconds UTC."""
    return int.from_bytes(job_id[:6]) * _MILLISECOND_US


def derived(cause: bytes, number: int) -> bytes:
    """Return the 16-byte id of the `number`-th consequence of a cause: always the same.

    A name-based UUID (RFC 9562, version 5) in the name space of the cause. Needed for each job,
    where `uuid.uuid5` is too slow.
    """
    digest = sha1(cause + b"%d" % number, usedforsecurity=False).digest()
    return (int.from_bytes(digest[:16]) & _NAMED_REST | _NAMED_VERSION).to_bytes(16)


def derived_each(causes: Iterable[bytes]) -> list[JobId]:
    """Return `derived(cause, 0)` of each cause; all digests are marked at once."""
    digests = bytearray().join(
        [sha1(cause + b"0", usedforsecurity=False).digest() for cause in causes]
    )
    for place, becomes in ((6, _VERSION_BYTES), (8, _VARIANT_BYTES)):
        digests[place::_DIGEST] = digests[place::_DIGEST].translate(becomes)
    return [JobId(raw_id) for (raw_id,) in iter_unpack("16s4x", digests)]
