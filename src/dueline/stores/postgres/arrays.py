"""Arrays as PostgreSQL's binary values, for statements on many rows.

The driver makes one call in Python for each element; these functions make one for each array.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from struct import Struct, pack
from typing import Any, Final

from psycopg import Cursor
from psycopg.adapt import Dumper
from psycopg.pq import Format
from psycopg.types.numeric import Int8BinaryDumper

_HEADER: Final = Struct(
    ">iiIii"
)  # dimensions, has nulls, type of the elements, length, first index
_LENGTH: Final = Struct(">i")
_NULL: Final = _LENGTH.pack(-1)


class _Integers(bytes):
    """An array of bigint."""


class _Flags(bytes):
    """An array of boolean."""


class _Texts(bytes):
    """An array of text."""


class _Blobs(bytes):
    """An array of bytea."""


_ELEMENTS: Final = {_Integers: 20, _Flags: 16, _Texts: 25, _Blobs: 17}
ARRAYS: Final[dict[type, int]] = {_Integers: 1016, _Flags: 1000, _Texts: 1009, _Blobs: 1001}
"""Type numbers of elements and of their arrays (pg_type.dat), which never change."""


def _fixed(code: str, size: int) -> Callable[[Sequence[Any]], bytes]:
    def packed(values: Sequence[Any]) -> bytes:
        cells = chain.from_iterable(zip(repeat(size), values, strict=False))
        return pack(f">{f'i{code}' * len(values)}", *cells)

    return packed


def _varying(values: Sequence[bytes]) -> bytes:
    lengths = map(_LENGTH.pack, map(len, values))
    return b"".join(chain.from_iterable(zip(lengths, values, strict=True)))


def _encoded(values: Sequence[str]) -> bytes:
    return _varying([value.encode() for value in values])


_PACKERS: Final[dict[type, tuple[type[bytes], Callable[[Sequence[Any]], bytes]]]] = {
    int: (_Integers, _fixed("q", 8)),
    bool: (_Flags, _fixed("?", 1)),
    str: (_Texts, _encoded),
    bytes: (_Blobs, _varying),
}


def columns_of(rows: Iterable[Iterable[object]]) -> list[list[object]]:
    """Return the columns of rows, each for one array; none of no rows."""
    return [list(column) for column in zip(*rows, strict=True)]


def packed(values: list[Any]) -> bytes:
    """Return a list of one type, in which None stands for NULL, as an array."""
    present = [value for value in values if value is not None]
    kind, pack_all = _PACKERS[next((known for known in _PACKERS if type(present[0]) is known), int)
                              if present else str]  # fmt: skip
    head = _HEADER.pack(1, len(present) < len(values), _ELEMENTS[kind], len(values), 1)
    if len(present) == len(values):
        return kind(head + pack_all(values))
    cells = (_NULL if value is None else pack_all([value]) for value in values)
    return kind(head + b"".join(cells))


def _dump(_self: object, value: bytes) -> bytes:
    return value


def _dumper(kind: type, oid: int) -> tuple[type, type]:
    return kind, type(
        f"{kind.__name__}Dumper", (Dumper,), {"format": Format.BINARY, "oid": oid, "dump": _dump}
    )


_DUMPERS: Final = [(int, Int8BinaryDumper), *(_dumper(*item) for item in ARRAYS.items())]


def register(cursor: Cursor) -> None:
    """Have a cursor send integers as bigint, and packed arrays as they are."""
    for kind, dumper in _DUMPERS:
        cursor.adapters.register_dumper(kind, dumper)
