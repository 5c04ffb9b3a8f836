"""Columns of the rows of a history."""

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, groupby, starmap
from operator import attrgetter, itemgetter
from struct import unpack
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from dueline.core.errors import StoreCorrupt
from dueline.core.store import Row
from dueline.jobs.history_batch import (
    ID_DIGITS,
    ids_in,
    ids_of_bundle,
    instants,
    is_bundle,
    unbundled,
)

TYPES: Final[Mapping[str, pa.DataType]] = {
    **dict.fromkeys(("job", "task", "queue", "tenant", "outcome", "error", "worker"), pa.string()),
    "digest": pa.string(),
    **dict.fromkeys(("priority", "fence", "codec", "size"), pa.int32()),
    **{f"{name}_us": pa.int64() for name in ("enqueued", "due", "claimed", "started", "ended")},
    "payload": pa.binary(),
    "shard": pa.int32(), "at": pa.int64(), "id": pa.string(), "detail": pa.string(),
}  # fmt: skip
"""Arrow types by key of a row's body; from `shard` on, fields of the row itself."""

_OF_ROW: Final = frozenset(("shard", "at", "id", "detail"))
_OF_ENQUEUE_EVENTS: Final = frozenset(("codec", "size", "payload"))
_OF_ALL: Final = frozenset(("task", "queue", "claimed_us", "outcome", "error", "worker", "fence"))
"""Keys that a bundle holds once for all of its attempts."""

_DEFAULTS: Final = {"digest": ("",)}
"""Defaults of keys that rows of older versions lack."""

_IN_PYTHON: Final[Mapping[pa.DataType, type]] = {
    pa.string(): str, pa.int32(): int, pa.int64(): int, pa.binary(): bytes,
}  # fmt: skip


class Same(NamedTuple):
    """One value for `many` attempts."""

    value: Any
    many: int


class Digits(NamedTuple):
    """Ids in hexadecimal digits, concatenated."""

    text: str


class Instants(NamedTuple):
    """Timestamps of 8 bytes each, big-endian."""

    packed: bytes


Cells = list[Any] | Same | Digits | Instants
"""The cells of a column, for some attempts."""

Found = dict[str, list[Cells]]


def columns(rows: Sequence[Row], keys: frozenset[str]) -> dict[str, pa.Array]:
    """Read the columns of some keys of TYPES from rows, without decoding the rest.

    Raises:
        StoreCorrupt: A row does not describe an attempt.
    """
    found: Found = {key: [] for key in keys}
    for is_of_many, run in groupby(rows, is_bundle):
        (_add_bundles if is_of_many else _add_each)(found, list(run))
    return {key: _array(parts, TYPES[key]) for key, parts in found.items()}


def _add_each(found: Found, rows: Sequence[Row]) -> None:
    """Add the cells of rows that hold one attempt each."""
    keys = frozenset(found.keys() - _OF_ROW)
    read = _reader(keys)
    read_rows = [_read(read, row) for row in rows] if keys else ()
    for key, parts in found.items():
        cells = _of_each(rows, key) if key in _OF_ROW else map(attrgetter(key), read_rows)
        parts.append(list(cells))


def _add_bundles(found: Found, rows: Sequence[Row]) -> None:
    """Add the cells of bundles, which hold many attempts each."""
    read = _reader_of_bundles(frozenset(found))
    bundles = [_read(read, row) for row in rows]
    try:
        for key, parts in found.items():
            parts.append(_of_bundles(rows, bundles, key))
    except ValueError as error:
        raise StoreCorrupt(f"A row of {rows[0].stream} is damaged: {error}.") from error


def _of_each(rows: Sequence[Row], key: str) -> Iterable[Any]:
    """Return a field of the rows themselves, where each row is one attempt."""
    if key == "id":
        return [row.id.hex() for row in rows]
    if key == "detail":
        return [row.body.decode() for row in rows]
    return map(attrgetter("at_us" if key == "at" else key), rows)


def _of_bundles(rows: Sequence[Row], bundles: Sequence[Any], key: str) -> Cells:
    """Return the cells of all attempts of bundles, with little work per attempt."""
    if key == "job":
        return Digits("".join([one.job for one in bundles]))
    if key == "id":
        claims = [
            (row, one.job, one.fence, one.enqueued_us)
            for row, one in zip(rows, bundles, strict=True)
        ]
        return Digits(b"".join(starmap(ids_of_bundle, claims)).hex())
    if key == "detail":
        return [one.body.decode() for row in rows for one in unbundled(row)]
    if key in _OF_ROW:
        cells = list(map(attrgetter("at_us" if key == "at" else key), rows))
    elif key in _OF_ENQUEUE_EVENTS:  # a bundle has no arguments
        cells = [None] * len(bundles)
    else:
        cells = list(map(attrgetter(key), bundles))
    many = [one.many for one in bundles]
    if TYPES[key] == pa.int64():
        return Instants(b"".join(map(instants, cells, many)))
    if isinstance(cells[0], list) or cells.count(cells[0]) < len(cells):
        return list(chain.from_iterable(map(_each, cells, many)))
    return Same(cells[0], sum(many))


def _each(cell: Any, many: int) -> Sequence[Any]:  # noqa: ANN401  (of any kind)
    return cell if isinstance(cell, list) else [cell] * many


def _array(parts: Sequence[Cells], kind: pa.DataType) -> pa.Array:
    """Build a column, without work per attempt where all cells are equal, or are ids."""
    kinds = set(map(type, parts))
    if kinds == {Instants}:
        numbers = array("q", b"".join(map(itemgetter(0), parts)))
        if sys.byteorder == "little":
            numbers.byteswap()
        return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])
    if kinds == {Digits}:
        text = "".join(map(itemgetter(0), parts)).encode()
        many = len(text) // ID_DIGITS
        return pa.StringArray.from_buffers(many, _ends(many), pa.py_buffer(text))
    if kinds == {Same} and len(set(map(itemgetter(0), parts))) == 1:
        return pa.repeat(pa.scalar(parts[0][0], kind), sum(map(itemgetter(1), parts)))
    return pa.array(list(chain.from_iterable(map(_flat, parts))), kind)


def _flat(part: Cells) -> Sequence[Any]:
    if isinstance(part, list):
        return part
    if isinstance(part, Same):
        return [part.value] * part.many
    if isinstance(part, Instants):
        return unpack(f">{len(part.packed) // 8}q", part.packed)
    return ids_in(part.text)


@lru_cache(maxsize=8)
def _ends(many: int) -> pa.Buffer:
    """Return Arrow's offsets of `many` ids in a string buffer."""
    return pa.py_buffer(array("i", range(0, many * ID_DIGITS + 1, ID_DIGITS)))


def _read(decoder: msgspec.json.Decoder[Any], row: Row) -> Any:  # noqa: ANN401  (made as needed)
    try:
        return decoder.decode(row.body)
    except msgspec.DecodeError as error:
        raise StoreCorrupt(
            f"The row {row.id.hex()} of {row.stream} is not an attempt: {error}.",
            hint='Read its bytes with table="stream".',
        ) from error


@lru_cache
def _reader(keys: frozenset[str]) -> msgspec.json.Decoder[Any]:
    """Make the decoder of some keys of a row; each becomes an attribute."""
    fields = [(key, _IN_PYTHON[TYPES[key]] | None, None) for key in sorted(keys)]
    return msgspec.json.Decoder(msgspec.defstruct("Attempt", fields, gc=False))


@lru_cache
def _reader_of_bundles(keys: frozenset[str]) -> msgspec.json.Decoder[Any]:
    """Make the decoder of some keys of a bundle."""
    fields: list[tuple[str, Any]] = [("many", int)]
    if not keys.isdisjoint(("job", "id")):
        fields += [("job", str)]
    if not keys.isdisjoint(("fence", "id")):
        fields += [("fence", int)]
    if "id" in keys:
        keys |= {"enqueued_us"}
    for key in sorted(keys - _OF_ROW - _OF_ENQUEUE_EVENTS - {"job", "fence"}):
        kind = _IN_PYTHON[TYPES[key]]
        if TYPES[key] == pa.int64():
            several: Any = str
        else:
            several = list[kind]  # type: ignore[valid-type]
        fields += [(key, kind if key in _OF_ALL else kind | several, *_DEFAULTS.get(key, ()))]
    return msgspec.json.Decoder(msgspec.defstruct("Bundle", fields, kw_only=True, gc=False))
