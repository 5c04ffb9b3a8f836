"""Groups of values by key, for more of them than fit into memory: sorted parts in a file."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from heapq import merge
from itertools import groupby
from typing import IO, Final, TypeVar

from dueline.core.codec import decode, encode

PART: Final = 100_000
"""Number of values that are held in memory."""

_BETWEEN: Final = b"\t"

T = TypeVar("T")


class SortedGroups:
    """Takes values in any order, and yields them by key.

    It needs about 150 bytes of temporary disk space for each value, until the stack is closed.
    """

    def __init__(self, stack: ExitStack, part: int = PART) -> None:
        self._stack, self._part = stack, part
        self._lines: list[bytes] = []
        self._files: list[IO[bytes]] = []

    def add(self, key: str, value: object) -> None:
        """Add a value. key: without tabs and line feeds."""
        self._lines.append(b"%b%b%b\n" % (key.encode(), _BETWEEN, encode(value)))
        if len(self._lines) >= self._part:
            self._write()

    def groups(self, kind: type[T]) -> Iterator[tuple[str, Sequence[T]]]:
        """Yield each key with its values, in the order of the keys."""
        self._lines.sort()
        for file in self._files:
            file.seek(0)
        lines = merge(*self._files, self._lines)
        for key, group in groupby(lines, lambda line: line.partition(_BETWEEN)[0]):
            values = (line.partition(_BETWEEN)[2] for line in group)
            yield key.decode(), [decode(value, kind) for value in values]

    def _write(self) -> None:
        from tempfile import TemporaryFile  # noqa: PLC0415  (seldom used)

        self._lines.sort()
        file = self._stack.enter_context(TemporaryFile())  # noqa: SIM115  (closed with the stack)
        self._files.append(file)
        file.writelines(self._lines)
        self._lines.clear()
