"""History rows of many events, stored by columns.

Events that one transaction records in one shard share rows, up to ATTEMPTS_MAX in each: the jobs
that a call enqueues, and the attempts that a worker ends. The body of such a row, a bundle, is a
head and a MessagePack array of columns. A column is one value for all events, or it has the values
of each: numbers of 8 bytes, ids of 16, texts as numbers in a list of the different ones. Readers of
many rows join the columns of bundles without looking at single events.

Rows of one event are JSON.

On stores where a verdict and its row are not one transaction, another process may record an attempt
again, in a row of its own. Readers recognize it by its id (rule F3).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import sha1
from itertools import repeat
from struct import Struct, pack, unpack
from typing import Any, Final

import msgspec

from dueline.core.attempt import COLUMNS, Attempt, EnqueuedEvent, Kind
from dueline.core.codec import DAMAGE, Cells, decode, encode
from dueline.core.errors import StoreCorrupt
from dueline.core.ids import derived
from dueline.core.store import Row

ATTEMPTS_MAX: Final = 100
"""Maximum number of events in a row, which bounds what a reader of few rows gets: less than 256,
so that a byte is the number of a text."""

ID_BYTES: Final = 16
_ID_DIGITS: Final = 2 * ID_BYTES

ENQUEUED: Final = "enqueued"
NO_CLAIM: Final = -1
"""The fence from which the row ids of enqueue events are made."""

DIGEST_BYTES: Final = 8
NO_DIGEST: Final = bytes(DIGEST_BYTES)

_HEAD: Final = Struct(">BH")
"""Version of the format, and number of events."""

_VERSION: Final = 1
_PAYLOADS_BYTES_MAX: Final = 256 * 1024
_TIME_BYTES: Final = 8
_SCATTER: Final = 0x9E3779B97F4A7C15
"""An odd number of 64 random bits."""

Numbers = int | bytes
"""One number for all events, or 8 bytes for each, little-endian."""

Texts = str | tuple[list[str], bytes]
"""One text for all events, or the different texts and, for each event, a byte: its number."""


class Bundle(Cells, frozen=True, gc=False, array_like=True):
    """The columns of a row of many events; names and meanings are those of an attempt.

    Attributes:
      job: The ids of the jobs, ID_BYTES each.
      digest: DIGEST_BYTES for all events or each, NO_DIGEST for none.
      codec, size, payload: Of enqueue events with arguments; empty without.
      options: Of enqueue events; empty for others.
    """

    job: bytes
    task: Texts
    queue: str
    tenant: Texts
    priority: Numbers
    enqueued_us: Numbers
    due_us: Numbers
    claimed_us: Numbers
    started_us: Numbers
    ended_us: Numbers
    outcome: Texts
    error: Texts
    worker: Texts
    fence: Numbers
    digest: bytes
    codec: tuple[int, ...]
    size: tuple[int, ...]
    payload: tuple[bytes | None, ...]
    limits: Texts
    again_us: Numbers
    tags: Texts = ""
    options: Texts = ""

    @property
    def many(self) -> int:
        """Number of events."""
        return len(self.job) // ID_BYTES


Lines = Mapping[str, Sequence[Any]]
"""Events by columns, before they are packed; those of enqueue events may be missing.

Ids and digests are bytes. The name of the queue is not included.
"""

_write: Final = msgspec.msgpack.Encoder().encode
_read: Final = msgspec.msgpack.Decoder(Bundle).decode


# Writing


def bundles_of(stream: str, shard: int, queue: str, lines: Lines) -> list[Row]:
    """Return the rows of events, each at the time of its last event.

    Args:
        stream: The stream of the history.
        shard: The shard.
        queue: The queue.
        lines: The events; either all are enqueue events, or none is.
    """
    largest = max(map(len, filter(None, lines.get("payload", ()))), default=0)
    largest += max(map(len, lines.get("options", ())), default=0)
    most = max(1, min(ATTEMPTS_MAX, _PAYLOADS_BYTES_MAX // (largest + 1)))
    return [
        _bundle(
            stream, shard, queue,
            {name: column[start : start + most] for name, column in lines.items()},
        )
        for start in range(0, len(lines["job"]), most)
    ]  # fmt: skip


def _bundle(stream: str, shard: int, queue: str, lines: Lines) -> Row:
    cells = {name: pack_column(lines.get(name, ())) for name, pack_column in _PACKERS}
    bundle = Bundle(queue=queue, **cells)
    many = bundle.many
    cause = bundle.job + packed(bundle.enqueued_us, many) + packed(bundle.fence, many)
    row_id = derived(cause + lines["outcome"][0].encode(), many)
    return Row(
        stream, shard, max(lines["ended_us"]), row_id, _HEAD.pack(_VERSION, many) + _write(bundle)
    )


def numbers_of(column: Sequence[int]) -> Numbers:
    """Pack a column of numbers."""
    shared = one_or_each(column)
    return shared if isinstance(shared, int) else pack(f"<{len(column)}q", *column)


def one_or_each(column: Sequence[Any]) -> Any:  # noqa: ANN401  (a cell of any kind)
    """Return the value that all cells of a column have; the column if they differ."""
    first = column[0]
    is_same = column[-1] == first and column.count(first) == len(column)
    return first if is_same else column


def _texts_of(column: Sequence[str]) -> Texts:
    if not column:
        return ""
    shared = one_or_each(column)
    if isinstance(shared, str):
        return shared
    numbers = {text: number for number, text in enumerate(dict.fromkeys(column))}
    return list(numbers), bytes(map(numbers.__getitem__, column))


_PACK: Final[Mapping[Kind, Callable[[Sequence[Any]], Any]]] = {
    Kind.ID: b"".join, Kind.TEXT: _texts_of, Kind.NUMBER: numbers_of, Kind.TIME: numbers_of,
    Kind.DIGEST: lambda column: b"".join(column if len(set(column)) > 1 else column[:1]),
    Kind.COUNT: tuple, Kind.BYTES: tuple,
}  # fmt: skip
_PACKERS: Final = [
    (name, _PACK[column.kind]) for name, column in COLUMNS.items() if column.kind in _PACK
]


# Row ids


def ids_in(digits: str) -> list[str]:
    """Return ids that are concatenated, in hexadecimal digits."""
    return [digits[start : start + _ID_DIGITS] for start in range(0, len(digits), _ID_DIGITS)]


def row_ids(jobs: bytes, digests: bytes, enqueued: bytes) -> bytes:
    """Return the row ids of events: the same for every repeat.

    A row's id is the job's id XOR the digest of the fence XOR the scattered enqueue time. A job id
    that is enqueued again after its job ended starts again at the first fence. The ids are computed
    for all events at once, because a digest for each is slow.

    Args:
        jobs: The ids of the jobs, concatenated, as the result is.
        digests: The digest of the fence of each, in the same order; see `digest_of_fence`.
        enqueued: When each was enqueued, 8 bytes each, little-endian.
    """
    # Each time is multiplied by _SCATTER in 16 bytes, so no product overflows into the next one.
    # Otherwise sequential ids and sequential times would cancel out.
    wide = bytearray(2 * len(enqueued))
    for place in range(_TIME_BYTES):
        wide[ID_BYTES - 1 - place :: ID_BYTES] = enqueued[place::_TIME_BYTES]
    scattered = int.from_bytes(wide) * _SCATTER
    return (int.from_bytes(digests) ^ int.from_bytes(jobs) ^ scattered).to_bytes(len(jobs))


@lru_cache(maxsize=1000)
def digest_of_fence(fence: int) -> bytes:
    """Return what a fence adds to row ids."""
    return sha1(b"attempt %d" % fence, usedforsecurity=False).digest()[:ID_BYTES]


def row_id_of(job: bytes, fence: int, enqueued_us: int) -> bytes:
    """Return the row id of one event."""
    enqueued = enqueued_us.to_bytes(_TIME_BYTES, "little", signed=True)
    return row_ids(job, digest_of_fence(fence), enqueued)


def id_parts(bundle: Bundle) -> tuple[bytes, bytes]:
    """Return the digests of fences and the enqueue times from which a bundle's row ids are made."""
    many, fence, enqueued_us = bundle.many, bundle.fence, bundle.enqueued_us
    if bundle.outcome == ENQUEUED:
        fence = NO_CLAIM
    if isinstance(fence, int):
        return digest_of_fence(fence) * many, packed(enqueued_us, many)
    return b"".join(map(digest_of_fence, each_number(fence, many))), packed(enqueued_us, many)


# Reading


def is_bundle(row: Row) -> bool:
    """Return whether a row of a history contains many events."""
    return row.body[:1] == b"\x01"


def size_of(row: Row) -> int:
    """Return how many rows a row of a history represents: 1 if it is not a bundle."""
    return int.from_bytes(row.body[1:3]) if is_bundle(row) else 1


def bundle_in(row: Row) -> Bundle:
    """Return the columns of a bundle.

    Raises:
        StoreCorrupt: The row cannot be read.
    """
    try:
        bundle = _read(memoryview(row.body)[_HEAD.size :])
    except DAMAGE as error:
        raise _damaged(row, f"cannot be read: {error}") from error
    many = size_of(row)
    for name, is_whole in _CHECKS:
        if not is_whole(getattr(bundle, name), many):
            raise _damaged(row, f"lacks cells of {name} for {many} attempts")
    return bundle


def _has_texts(cell: Texts, many: int) -> bool:
    if isinstance(cell, str):
        return True
    return len(cell[1]) == many and max(cell[1], default=0) < len(cell[0])


_IS_WHOLE: Final[Mapping[Kind, Callable[[Any, int], bool]]] = {
    Kind.ID: lambda cell, many: len(cell) == many * ID_BYTES,
    Kind.TEXT: _has_texts,
    **dict.fromkeys(
        (Kind.NUMBER, Kind.TIME),
        lambda cell, many: isinstance(cell, int) or len(cell) == many * _TIME_BYTES,
    ),
    Kind.DIGEST: lambda cell, many: len(cell) in (DIGEST_BYTES, many * DIGEST_BYTES),
}
_CHECKS: Final = [
    (name, _IS_WHOLE[column.kind]) for name, column in COLUMNS.items() if column.kind in _IS_WHOLE
]


def _damaged(row: Row, what: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"The row {row.id.hex()} of {row.stream} {what}.",
        hint="Was it written by another program, or a newer dueline?",
    )


def attempts_in(row: Row) -> list[tuple[bytes, Attempt]]:
    """Return the events in a row of a history, each with the id of its row.

    Raises:
        StoreCorrupt: The row cannot be read.
    """
    if not is_bundle(row):
        event = decode(row.body, Attempt)
        if event.outcome == ENQUEUED:
            enqueued = decode(row.body, EnqueuedEvent)
            event = enqueued if enqueued.codec is not None or enqueued.options else event
        return [(row.id, event)]
    bundle = bundle_in(row)
    ids = row_ids(bundle.job, *id_parts(bundle))
    each = (ids[start : start + ID_BYTES] for start in range(0, len(ids), ID_BYTES))
    return list(zip(each, _events(bundle), strict=True))


def _events(bundle: Bundle) -> Iterator[Attempt]:
    """Yield the events of a bundle."""
    many = bundle.many
    kind = EnqueuedEvent if bundle.codec or bundle.options else Attempt
    columns = [
        _EACH[COLUMNS[name].kind](getattr(bundle, name), many) for name in kind.__dataclass_fields__
    ]
    return (kind(*cells) for cells in zip(*columns, strict=True))


def packed(cell: Numbers, many: int) -> bytes:
    """Return the numbers of each event, 8 bytes each, little-endian."""
    if isinstance(cell, bytes):
        return cell
    return cell.to_bytes(_TIME_BYTES, "little", signed=True) * many


def each_number(cell: Numbers, many: int) -> Iterable[int]:
    """Return the number of each event."""
    return repeat(cell, many) if isinstance(cell, int) else unpack(f"<{many}q", cell)


def each_text(cell: Texts, many: int) -> Iterable[str]:
    """Return the text of each event."""
    return repeat(cell, many) if isinstance(cell, str) else map(cell[0].__getitem__, cell[1])


def each_digest(cell: bytes, many: int) -> Iterable[str]:
    """Return the digest of each event in hexadecimal, "" for none."""
    if len(cell) == DIGEST_BYTES:
        return repeat("" if cell == NO_DIGEST else cell.hex(), many)
    each = (cell[start : start + DIGEST_BYTES] for start in range(0, len(cell), DIGEST_BYTES))
    return ["" if digest == NO_DIGEST else digest.hex() for digest in each]


_EACH: Final[Mapping[Kind, Callable[[Any, int], Iterable[Any]]]] = {
    Kind.ID: lambda cell, _: ids_in(cell.hex()), Kind.NAME: repeat, Kind.TEXT: each_text,
    Kind.NUMBER: each_number, Kind.TIME: each_number, Kind.DIGEST: each_digest,
    Kind.COUNT: lambda cell, many: cell or [None] * many,
    Kind.BYTES: lambda cell, many: cell or [None] * many,
}  # fmt: skip


def unbundled(row: Row) -> Iterator[Row]:
    """Yield the rows that a row of a history represents: itself if it is not a bundle.

    They have the position of the bundle.
    """
    if not is_bundle(row):
        yield row
        return
    for row_id, attempt in attempts_in(row):
        yield row._replace(id=row_id, body=encode(attempt))
