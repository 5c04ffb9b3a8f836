"""History rows of many attempts.

A worker records the attempts that it ends together in one row for up to ATTEMPTS_MAX attempts. The
body of such a row, a bundle, begins with their number, has equal values once, and the others for
each. Readers take it apart: `unbundled` returns the rows of each.

On stores where a verdict and its row are not one transaction, another process may record an attempt
again, in a row of its own. Readers recognize it by its id (rule F3).
"""

from collections.abc import Iterator, Sequence
from hashlib import sha1
from itertools import repeat
from struct import error as StructError  # noqa: N812  (it is a class)
from struct import pack, unpack
from typing import Any, Final

from dueline.core.attempt import Attempt, Done, Ended, digest_of
from dueline.core.codec import Cells, decode, encode
from dueline.core.errors import StoreCorrupt
from dueline.core.ids import derived
from dueline.core.job import Job
from dueline.core.lane import Lane, tenant_of
from dueline.core.store import Row
from dueline.core.tuples import field

ATTEMPTS_MAX: Final = 100
"""Maximum number of attempts in a row, which bounds what a reader of few rows gets."""

_ID_BYTES: Final = 16
_TIME_BYTES: Final = 8
_SCATTER: Final = 0x9E3779B97F4A7C15
"""An odd number of 64 random bits."""

ID_DIGITS: Final = 2 * _ID_BYTES
_OPENING: Final = b'{"many":'
_PLACE = len(_OPENING)


class Bundle(Cells, frozen=True, gc=False):
    """The body of a row of many attempts: fields as an attempt's, one for all or one for each.

    Attributes:
      many: How many.
      job: The ids of their jobs, in hexadecimal digits; see `ids_in`.
      enqueued_us, due_us, started_us, ended_us: As strings those of each; see `instants`.
    """

    many: int
    job: str
    task: str
    queue: str
    tenant: str | list[str]
    priority: int | list[int]
    enqueued_us: int | str
    due_us: int | str
    claimed_us: int
    started_us: int | str
    ended_us: int | str
    outcome: str
    error: str
    worker: str
    fence: int
    digest: str | list[str] = ""


_job_of = field(Ended, "job")
_lane_of, _id_of, _enqueued_of, _due_of = (
    field(Job, name) for name in ("lane", "id", "enqueued_us", "due_us")
)
_priority_of = field(Lane, "priority")
_value_of = field(Done, "value")


def bundle_of(done: Sequence[Ended], stream: str) -> Row:
    """Return the row of successful attempts, at the end of the last.

    Args:
        done: Attempts of one queue, shard and task, with equal fence, worker and time of claim.
        stream: The stream of the history.
    """
    jobs, endings, started_us, ended_us = zip(*done, strict=True)
    first: Job = jobs[0]
    ids = b"".join(map(_id_of, jobs))
    enqueued_us = instants_of(tuple(map(_enqueued_of, jobs)))
    lanes = list(map(_lane_of, jobs))
    if lanes.count(lanes[0]) == len(lanes):
        lanes = lanes[:1]
    body = encode(
        Bundle(
            len(jobs),
            ids.hex(),
            first.task,
            first.lane.queue,
            one_or_each(list(map(tenant_of, lanes))),
            one_or_each(list(map(_priority_of, lanes))),
            enqueued_us,
            instants_of(tuple(map(_due_of, jobs))),
            first.claimed_us,
            instants_of(started_us),
            instants_of(ended_us),
            "done",
            "",
            first.worker,
            first.fence,
            _digests_of(list(map(_value_of, endings))),
        )
    )
    row_id = derived(ids + instants(enqueued_us, len(jobs)), first.fence)
    return Row(stream, first.lane.shard, max(ended_us), row_id, body)


def _digests_of(values: list[bytes]) -> str | list[str]:
    """Return the digests of results; usually all results are equal, such as `null`."""
    one = one_or_each(values)
    return digest_of(one) if isinstance(one, bytes) else list(map(digest_of, values))


def one_or_each(column: Sequence[Any]) -> Any:  # noqa: ANN401  (a cell of any kind)
    """Return the value that all cells of a column have; the column if they differ."""
    first = column[0]
    is_same = column[-1] == first and column.count(first) == len(column)
    return first if is_same else column


def instants_of(column: tuple[int, ...]) -> int | str:
    """Encode timestamps: as one number, or 16 hexadecimal digits for each, concatenated."""
    one = one_or_each(column)
    return one if isinstance(one, int) else pack(f">{len(column)}q", *column).hex()


def instants(cell: int | str, many: int) -> bytes:
    """Decode timestamps to 8 bytes each, big-endian.

    Raises:
        ValueError: The string is damaged.
    """
    return bytes.fromhex(cell) if isinstance(cell, str) else cell.to_bytes(8, signed=True) * many


def ids_in(digits: str) -> list[str]:
    """Return ids that are concatenated, each with ID_DIGITS digits."""
    return [digits[start : start + ID_DIGITS] for start in range(0, len(digits), ID_DIGITS)]


def row_ids(jobs: bytes, fence: int, enqueued: bytes) -> bytes:
    """Return the row ids of the claims with one fence of some jobs: the same for every repeat.

    A row's id is the job's id XOR the digest of the fence XOR the scattered enqueue time. A job id
    that is enqueued again after its job ended starts again at the first fence. The ids are computed
    for all jobs at once, because a digest for each is slow.

    Args:
        jobs: The ids of the jobs, concatenated, as the result is.
        fence: The fence.
        enqueued: When each was enqueued, 8 bytes each, in the same order; see `instants`.
    """
    digest = sha1(b"attempt %d" % fence, usedforsecurity=False).digest()[:_ID_BYTES]
    over = digest * (len(jobs) // _ID_BYTES)
    # Each time is multiplied by _SCATTER in 16 bytes, so no product overflows into the next one.
    # Otherwise sequential ids and sequential times would cancel out.
    wide = bytearray(2 * len(enqueued))
    for place in range(_TIME_BYTES):
        wide[place + _TIME_BYTES :: _ID_BYTES] = enqueued[place::_TIME_BYTES]
    scattered = int.from_bytes(wide) * _SCATTER
    return (int.from_bytes(over) ^ int.from_bytes(jobs) ^ scattered).to_bytes(len(jobs))


def ids_of_bundle(row: Row, digits: str, fence: int, enqueued_us: int | str) -> bytes:
    """Return the row ids of the attempts of a bundle, concatenated.

    If a bundle's own id does not depend on the enqueue times, an older version wrote it, and the
    ids of its attempts do not either. They stay, since copies of the history hold them.

    Args:
        row: The row of the bundle.
        digits: Its job ids.
        fence: Its fence.
        enqueued_us: Its enqueue times.

    Raises:
        ValueError: The body is damaged.
    """
    jobs = bytes.fromhex(digits)
    many = len(jobs) // _ID_BYTES
    if row.id == derived(jobs, fence):
        return row_ids(jobs, fence, bytes(_TIME_BYTES * many))
    return row_ids(jobs, fence, instants(enqueued_us, many))


def is_bundle(row: Row) -> bool:
    """Return whether a row of a history contains many attempts."""
    return row.body.startswith(_OPENING)


def size_of(row: Row) -> int:
    """Return how many rows a row of a history represents: 1 if it is not a bundle."""
    body = row.body
    return int(body[_PLACE : body.index(b",")]) if is_bundle(row) else 1


def attempts_in(row: Row) -> list[tuple[bytes, Attempt]]:
    """Return the attempts in a row of a history, each with the id of its row.

    Raises:
        StoreCorrupt: The row cannot be read.
    """
    if not is_bundle(row):
        return [(row.id, decode(row.body, Attempt))]
    bundle = decode(row.body, Bundle)
    try:
        return _apart(row, bundle)
    except (ValueError, StructError) as error:
        raise StoreCorrupt(
            f"The row {row.id.hex()} of {row.stream} lacks {bundle.many} attempts: {error}.",
            hint="Was it written by another program, or a newer dueline?",
        ) from error


def _apart(row: Row, bundle: Bundle) -> list[tuple[bytes, Attempt]]:
    jobs = ids_in(bundle.job)
    enqueued_us, due_us, started_us, ended_us = (
        unpack(f">{bundle.many}q", instants(cell, bundle.many))
        for cell in (bundle.enqueued_us, bundle.due_us, bundle.started_us, bundle.ended_us)
    )
    columns = (
        jobs, bundle.task, bundle.queue, bundle.tenant, bundle.priority, enqueued_us, due_us,
        bundle.claimed_us, started_us, ended_us, bundle.outcome, bundle.error, bundle.worker,
        bundle.fence, bundle.digest,
    )  # fmt: skip
    each = [one if isinstance(one, list | tuple) else repeat(one, bundle.many) for one in columns]
    attempts = [Attempt(*cells) for cells in zip(*each, strict=True)]
    if len(bundle.job) != bundle.many * ID_DIGITS:
        raise ValueError("ids are cut")
    ids = ids_in(ids_of_bundle(row, bundle.job, bundle.fence, bundle.enqueued_us).hex())
    return list(zip(map(bytes.fromhex, ids), attempts, strict=True))


def unbundled(row: Row) -> Iterator[Row]:
    """Yield the rows that a row of a history represents: itself if it is not a bundle.

    They have the position of the bundle.
    """
    if not is_bundle(row):
        yield row
        return
    for row_id, attempt in attempts_in(row):
        yield row._replace(id=row_id, body=encode(attempt))
