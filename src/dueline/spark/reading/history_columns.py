"""Columns of the rows of a history."""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyarrow import compute

from dueline.core.attempt import COLUMNS, SHOWN, Attempt, Kind
from dueline.core.codec import encode
from dueline.core.errors import StoreCorrupt
from dueline.core.store import Row
from dueline.jobs.history_batch import (
    DIGEST_BYTES,
    ID_BYTES,
    Numbers,
    Texts,
    bundle_in,
    id_parts,
    is_bundle,
    packed,
    row_ids,
    unbundled,
)

_BY_KIND: Final[Mapping[Kind, pa.DataType]] = {
    Kind.ID: pa.string(), Kind.NAME: pa.string(), Kind.TEXT: pa.string(), Kind.DIGEST: pa.string(),
    Kind.NUMBER: pa.int32(), Kind.COUNT: pa.int32(), Kind.TIME: pa.int64(),
    Kind.BYTES: pa.binary(),
}  # fmt: skip
_OF_ROW: Final[Mapping[str, pa.DataType]] = {
    "shard": pa.int32(), "at": pa.int64(), "id": pa.string(), "detail": pa.string(),
}  # fmt: skip

TYPES: Final[Mapping[str, pa.DataType]] = {
    **{name: _BY_KIND[column.kind] for name, column in COLUMNS.items()}, **_OF_ROW,
}  # fmt: skip
"""Arrow types by the key of a row's body, and of the fields of the row itself."""


def key_of(shown: str) -> str:
    """Return the key of a column in tables."""
    return SHOWN.get(shown, shown)


def shown_column(shown: str, column: pa.Array) -> pa.Array:
    """Return a column as tables show it, with null where there is nothing."""
    described = COLUMNS.get(key_of(shown))
    if described is None or described.null is None:
        return column
    return compute.if_else(compute.equal(column, described.null), None, column)


_TEXTS: Final = frozenset((Kind.TEXT, Kind.NAME))

_IN_PYTHON: Final[Mapping[pa.DataType, type]] = {
    pa.string(): str, pa.int32(): int, pa.int64(): int, pa.binary(): bytes,
}  # fmt: skip

_CODES_MAX: Final = 256
"""Maximum number of different texts for which a byte is the number of each."""

_FIELDS: Final = tuple(Attempt.__dataclass_fields__)


def columns(rows: Sequence[Row], keys: frozenset[str]) -> dict[str, pa.Array]:
    """Read the columns of some keys of TYPES from rows, without decoding the rest.

    The events of single rows come first, then those of bundles, each in their order.

    Raises:
        StoreCorrupt: A row does not describe an attempt.
    """
    bundled = [row for row in rows if is_bundle(row)]
    singles = [row for row in rows if not is_bundle(row)] if len(bundled) < len(rows) else ()
    arrays: dict[str, list[pa.Array]] = {key: [] for key in keys}
    if singles:
        _add_each(arrays, singles)
    if bundled:
        bundles = _Bundles(bundled)
        for key, parts in arrays.items():
            parts.append(bundles.column(key))
    return {
        key: parts[0] if len(parts) == 1 else pa.concat_arrays([*parts, pa.array([], TYPES[key])])
        for key, parts in arrays.items()
    }


# Rows of one event


def _add_each(arrays: dict[str, list[pa.Array]], rows: Sequence[Row]) -> None:
    """Add the cells of rows that hold one event each."""
    keys = frozenset(arrays.keys() - _OF_ROW.keys())
    read = _reader(keys)
    read_rows = [_read(read, row) for row in rows] if keys else ()
    for key, parts in arrays.items():
        cells = _of_each(rows, key) if key in _OF_ROW else map(attrgetter(key), read_rows)
        parts.append(pa.array(list(cells), TYPES[key]))


def _of_each(rows: Sequence[Row], key: str) -> Iterable[Any]:
    """Return a field of the rows themselves, where each row is one event."""
    if key == "id":
        return [row.id.hex() for row in rows]
    if key == "detail":
        return [row.body.decode() for row in rows]
    return map(attrgetter("at_us" if key == "at" else key), rows)


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


# Rows of many events


class _Bundles:
    """The columns of bundles; no work is done for each event."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self._bundles = list(map(bundle_in, rows))
        self._many = [bundle.many for bundle in self._bundles]
        self._total = sum(self._many)

    def column(self, key: str) -> pa.Array:
        """Return the cells of a key."""
        if key == "detail":
            return self._details()
        if key == "id":
            return digits_of(self._ids(), ID_BYTES)
        if key == "job":
            return digits_of(b"".join([bundle.job for bundle in self._bundles]), ID_BYTES)
        kind = None if key in _OF_ROW else COLUMNS[key].kind
        if kind is Kind.DIGEST:
            return self._digests()
        if kind in _TEXTS:
            return self._texts(key, str)
        if kind in (Kind.COUNT, Kind.BYTES):
            return self._arguments(key)
        if kind is None:
            cells: Iterable[Numbers] = map(attrgetter("at_us" if key == "at" else key), self._rows)
        else:
            cells = map(attrgetter(key), self._bundles)
        joined = b"".join(map(packed, cells, self._many))
        numbers = pa.Array.from_buffers(pa.int64(), self._total, [None, pa.py_buffer(joined)])
        return numbers.cast(TYPES[key])

    def _ids(self) -> bytes:
        parts = list(map(id_parts, self._bundles))
        return row_ids(
            b"".join([bundle.job for bundle in self._bundles]),
            b"".join([digests for digests, _ in parts]),
            b"".join([enqueued for _, enqueued in parts]),
        )

    def _digests(self) -> pa.Array:
        """Return the digests of results, "" for none."""
        joined = b"".join(
            [
                bundle.digest * many if len(bundle.digest) == DIGEST_BYTES else bundle.digest
                for bundle, many in zip(self._bundles, self._many, strict=True)
            ]
        )
        numbers = pa.Array.from_buffers(pa.int64(), self._total, [None, pa.py_buffer(joined)])
        return compute.if_else(compute.equal(numbers, 0), "", digits_of(joined, DIGEST_BYTES))

    def _texts(self, key: str, form: Callable[[str], str]) -> pa.Array:
        """Return a column of texts, each in a form that is made once."""
        cells: list[Texts] = list(map(attrgetter(key), self._bundles))
        known: dict[str, int] = {}
        for cell in cells:
            for text in (cell,) if isinstance(cell, str) else cell[0]:
                known.setdefault(text, len(known))
        texts = pa.array(map(form, known), pa.string(), size=len(known))
        if len(known) == 1:
            return pa.repeat(texts[0], self._total)
        if len(known) > _CODES_MAX:
            numbers = array("i")
            for cell, many in zip(cells, self._many, strict=True):
                if isinstance(cell, str):
                    numbers.extend(array("i", (known[cell],)) * many)
                else:
                    places = list(map(known.__getitem__, cell[0]))
                    numbers.extend(map(places.__getitem__, cell[1]))
            codes = pa.Array.from_buffers(pa.int32(), self._total, [None, pa.py_buffer(numbers)])
            return texts.take(codes)
        joined = b"".join(
            [
                bytes((known[cell],)) * many
                if isinstance(cell, str)
                else cell[1].translate(bytes(map(known.__getitem__, cell[0])).ljust(256))
                for cell, many in zip(cells, self._many, strict=True)
            ]
        )
        codes = pa.Array.from_buffers(pa.uint8(), self._total, [None, pa.py_buffer(joined)])
        return texts.take(codes)

    def _arguments(self, key: str) -> pa.Array:
        cells = [
            getattr(bundle, key) or (None,) * bundle.many
            for bundle in self._bundles
            if bundle.codec
        ]
        if not cells:
            return pa.nulls(self._total, TYPES[key])
        each = ((getattr(bundle, key) or (None,) * bundle.many) for bundle in self._bundles)
        return pa.array(list(chain.from_iterable(each)), TYPES[key])

    def _details(self) -> pa.Array:
        """Return the JSON of each event, as its own row would have it."""
        if any(bundle.codec or bundle.options for bundle in self._bundles):
            return pa.array([event.body.decode() for row in self._rows for event in unbundled(row)])
        parts: list[Any] = []
        for number, name in enumerate(_FIELDS):
            kind = COLUMNS[name].kind
            is_quoted = kind in (Kind.ID, Kind.DIGEST)
            quote = '"' if is_quoted else ""
            parts.append(f"""{"," if number else "{"}"{name}":{quote}""")
            column = self._texts(name, _json) if kind in _TEXTS else self.column(name)
            parts.append(column.cast(pa.string()))
            if is_quoted:
                parts.append('"')
        return compute.binary_join_element_wise(*parts, "}", "")


def _json(text: str) -> str:
    return encode(text).decode()


def digits_of(joined: bytes, size: int) -> pa.Array:
    """Return byte strings of one size, which are concatenated, in hexadecimal digits."""
    many = len(joined) // size
    text = joined.hex().encode()
    ends = _ends(1 << many.bit_length(), 2 * size)
    return pa.StringArray.from_buffers(many, ends, pa.py_buffer(text))


@lru_cache(maxsize=8)
def _ends(most: int, width: int) -> pa.Buffer:
    """Return Arrow's offsets of up to `most` texts of one width in a string buffer."""
    return pa.py_buffer(array("i", range(0, most * width + 1, width)))
