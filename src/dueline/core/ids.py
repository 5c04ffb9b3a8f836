"""Time-ordered ids, random tokens."""

import os
import threading
from collections.abc import Callable, Iterable
from hashlib import sha1
from itertools import repeat
from struct import iter_unpack
from typing import cast

from dueline.core.job import JobId, Token

_TAIL_BITS = 62
_VARIANT = 0b10 << _TAIL_BITS
_VERSION = 7 << 76
_MILLISECOND_US = 1000
_NAMED_VERSION = (5 << 76) | (0b10 << 62)
_NAMED_REST = ~((0xF << 76) | (0b11 << 62))
_DIGEST = 20  # bytes
_VERSION_BYTES = bytes(0x50 | one & 0xF for one in range(256))  # what a byte becomes
_VARIANT_BYTES = bytes(0x80 | one & 0x3F for one in range(256))


class Ids:
    """Makes UUIDv7 ids that only grow within a process, and random tokens.

    Layout (RFC 9562): 48 bits of milliseconds, version, 12 bits of the millisecond's
    fraction, variant, 62 bits that start at fresh randomness for each batch and then count.
    A fork starts anew from fresh randomness, so parent and child never make the same id (rule E1).
    """

    def __init__(self, randomness: Callable[[int], bytes] = os.urandom) -> None:
        """Take the source of randomness: a function of a number of bytes."""
        self._randomness = randomness
        self._lock = threading.Lock()
        self._last = 0
        os.register_at_fork(after_in_child=self._start_anew)

    def _start_anew(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def many(self, count: int, now_us: int) -> list[JobId]:
        """Make ids in growing order.

        Args: count: how many. now_us: the time that they carry, microseconds UTC.
        """
        millisecond, rest_us = divmod(now_us, _MILLISECOND_US)
        fraction = rest_us * 4096 // _MILLISECOND_US
        head = (millisecond << 80) | _VERSION | (fraction << 64) | _VARIANT
        # One bit of the tail stays clear, so that counting up never reaches the variant bits.
        tail = int.from_bytes(self._randomness(8)) >> (64 - _TAIL_BITS + 1)
        with self._lock:
            first = max(head | tail, self._last + 1)
            self._last = first + count - 1
        made = map(int.to_bytes, range(first, first + count), repeat(16))
        return cast("list[JobId]", list(made))

    def one(self, now_us: int) -> JobId:
        """Make one id that carries the time `now_us`."""
        return self.many(1, now_us)[0]

    def token(self) -> Token:
        """Make a claim's token: 128 random bits."""
        return Token(self._randomness(16))


def created_us(job_id: JobId) -> int:
    """Read the time that an id carries, to the millisecond, in microseconds UTC."""
    return int.from_bytes(job_id[:6]) * _MILLISECOND_US


def derived(cause: bytes, number: int) -> bytes:
    """Make the 16-byte id of the `number`-th thing that follows from a cause: always the same.

    A name-based UUID (RFC 9562, version 5) in the name space of the cause. Made here, since
    `uuid.uuid5` took 10 us and this takes 2 (November 2026), once a job.
    """
    digest = sha1(cause + b"%d" % number, usedforsecurity=False).digest()
    return (int.from_bytes(digest[:16]) & _NAMED_REST | _NAMED_VERSION).to_bytes(16)


def derived_each(causes: Iterable[bytes]) -> list[JobId]:
    """Make `derived(cause, 0)` of each cause, in half the time: all digests are marked at once."""
    digests = bytearray().join([sha1(one + b"0", usedforsecurity=False).digest() for one in causes])
    for place, becomes in ((6, _VERSION_BYTES), (8, _VARIANT_BYTES)):
        digests[place::_DIGEST] = digests[place::_DIGEST].translate(becomes)
    return [JobId(one) for (one,) in iter_unpack("16s4x", digests)]
