"""Sequences: numbers that are issued once (high/low algorithm).

A process reserves a block with one conditional write and then counts locally. Two processes that
race reserve different blocks. A block that is not used up leaves a gap.
"""

import threading
from dataclasses import dataclass
from typing import Final

from dueline.core.codec import decode, encode
from dueline.core.errors import BadInput, Conflict, Unknown
from dueline.core.ids import Ids
from dueline.core.store import NO_VERSION, Put, Records

BLOCK: Final = 1000
NUMBER_MAX: Final = 2**63 - 1
_KEY: Final = "high"
_ROUNDS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class _High:
    """The first number that is not reserved."""

    next: int


class Sequence:
    """One process's view of a named sequence; threads may share it.

    Its numbers only grow, and no number is issued twice by any process. A process that starts
    later begins above all reserved blocks.
    """

    def __init__(self, records: Records, name: str, *, ids: Ids, block: int = BLOCK) -> None:
        self._records = records
        self._partition = f"sequences/{name}"
        self._ids = ids
        self._block = block
        self._lock = threading.Lock()
        self._low = self._end = 0

    def next(self) -> int:
        """Return the next number; the first is 1."""
        return self.many(1)[0]

    def many(self, count: int) -> list[int]:
        """Return `count` numbers, in order, with at most one write.

        Raises: StoreUnavailable: none was issued.
        """
        if count < 0:
            raise BadInput(f"{count} numbers cannot be given.")
        with self._lock:
            first = list(range(self._low, min(self._low + count, self._end)))
            rest = count - len(first)
            if not rest:
                self._low += count
                return first
            self._low, self._end = self._reserve(max(rest, self._block))
            start, self._low = self._low, self._low + rest
            return first + list(range(start, self._low))

    def _reserve(self, size: int) -> tuple[int, int]:
        for _ in range(_ROUNDS_MAX):
            start, version = self._high()
            end = start + size
            if end > NUMBER_MAX:
                raise Conflict(f"{self._partition} is used up.")
            put = Put(_KEY, self._ids.token(), encode(_High(end)), expect=version)
            try:
                if self._records.commit(self._partition, (put,)):
                    return start, end
            except Unknown:  # it is reserved here or a gap: a read decides
                if self._high()[1] == put.version:
                    return start, end
        raise Conflict(f"Other processes keep reserving numbers of {self._partition}.")

    def _high(self) -> tuple[int, bytes]:
        for record in self._records.read(self._partition, after=None, limit=1):
            return decode(record.value, _High).next, record.version
        return 1, NO_VERSION
