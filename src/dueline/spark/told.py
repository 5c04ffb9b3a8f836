"""What rows of a history tell, column by column."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, cast

import msgspec
import pyarrow as pa

from dueline.bundle import SEPARATOR, apart, is_bundle, row_ids, unbundled
from dueline.errors import StoreCorrupt
from dueline.store import Row

TYPES: Final[Mapping[str, pa.DataType]] = {
    **dict.fromkeys(("job", "task", "queue", "tenant", "outcome", "error", "worker"), pa.string()),
    **dict.fromkeys(("priority", "fence", "codec", "size"), pa.int32()),
    **{f"{name}_us": pa.int64() for name in ("enqueued", "due", "claimed", "started", "ended")},
    "payload": pa.binary(),
    "shard": pa.int32(), "at": pa.int64(), "id": pa.string(), "detail": pa.string(),
}  # fmt: skip
"""What can be told, by its name in a row's body; from `shard` on, of the row itself."""

_OF_ROW: Final = frozenset(("shard", "at", "id", "detail"))
_OF_BIRTHS: Final = frozenset(("codec", "size", "payload"))
_OF_ALL: Final = frozenset(("task", "queue", "claimed_us", "outcome", "error", "worker", "fence"))
"""What a bundle says once."""

_IN_PYTHON: Final[Mapping[pa.DataType, type]] = {
    pa.string(): str, pa.int32(): int, pa.int64(): int, pa.binary(): bytes,
}  # fmt: skip


def columns(rows: Sequence[Row], keys: frozenset[str]) -> dict[str, list[Any]]:
    """Read what rows tell under some keys of TYPES; the rest is passed over.

    Raises: StoreCorrupt: a row tells of no attempt.
    """
    found: dict[str, list[Any]] = {key: [] for key in keys}
    of_body = keys - _OF_ROW
    for is_of_many, run in groupby(rows, is_bundle):
        if not is_of_many:
            some, read = list(run), _reader(of_body)
            told = [_read(read, row) for row in some] if of_body else ()
            for key, column in found.items():
                column.extend(_of_each(some, key) if key in _OF_ROW else map(attrgetter(key), told))
            continue
        read = _reader_of_bundles(keys)
        for row in run:
            bundle = _read(read, row)
            for key, column in found.items():
                column.extend(_of_bundle(row, bundle, key))
    return found


def _of_each(rows: Sequence[Row], key: str) -> Iterable[Any]:
    """Tell something of rows themselves, each of which stands for one."""
    if key == "id":
        return [row.id.hex() for row in rows]
    if key == "detail":
        return [row.body.decode() for row in rows]
    return map(attrgetter("at_us" if key == "at" else key), rows)


def _of_bundle(row: Row, bundle: Any, key: str) -> Sequence[Any]:  # noqa: ANN401  (made as needed)
    """Tell something of all attempts of a bundle."""
    if key == "job":
        return cast("str", bundle.job).split(SEPARATOR)
    if key == "id":
        return apart(row_ids(bytes.fromhex(bundle.job.replace(SEPARATOR, "")), bundle.fence))
    if key == "detail":
        return [one.body.decode() for one in unbundled(row)]
    if key in _OF_ROW:
        return [row.at_us if key == "at" else row.shard] * bundle.many
    cell = None if key in _OF_BIRTHS else getattr(bundle, key)
    return cell if isinstance(cell, list) else [cell] * bundle.many


def _read(decoder: msgspec.json.Decoder[Any], row: Row) -> Any:  # noqa: ANN401  (made as needed)
    try:
        return decoder.decode(row.body)
    except msgspec.DecodeError as error:
        raise StoreCorrupt(
            f"The row {row.id.hex()} of {row.stream} tells of no attempt: {error}.",
            hint='Read it as it is: table="stream".',
        ) from error


@lru_cache
def _reader(keys: frozenset[str]) -> msgspec.json.Decoder[Any]:
    """Make what reads some keys of a row, and gives each as an attribute.

    3 of 15 take 1.0 us a row; Arrow's reader of JSON took 2.2, and 4.6 for all, as this does
    together with the columns (November 2026).
    """
    fields = [(key, _IN_PYTHON[TYPES[key]] | None, None) for key in sorted(keys)]
    return msgspec.json.Decoder(msgspec.defstruct("Told", fields, gc=False))


@lru_cache
def _reader_of_bundles(keys: frozenset[str]) -> msgspec.json.Decoder[Any]:
    """Make what reads some keys of a bundle."""
    fields: list[tuple[str, Any]] = [("many", int)]
    if not keys.isdisjoint(("job", "id")):
        fields += [("job", str)]
    if not keys.isdisjoint(("fence", "id")):
        fields += [("fence", int)]
    for key in sorted(keys - _OF_ROW - _OF_BIRTHS - {"job", "fence"}):
        kind = _IN_PYTHON[TYPES[key]]
        fields += [(key, kind if key in _OF_ALL else kind | list[kind])]  # type: ignore[valid-type]
    return msgspec.json.Decoder(msgspec.defstruct("Bundle", fields, gc=False))
