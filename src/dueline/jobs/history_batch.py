"""Rows of a history that tell of many attempts.

What a worker ends in one transaction is told of in one row for up to ATTEMPTS_MAX attempts: a row
for each took 4.5 us a job, this takes 1.2 (SQLite, November 2026). A bundle is a row like an
attempt's; its body begins with how many it tells of, says once what is the same for all of them,
and the rest of each. Readers take it apart: `unbundled` makes the very rows of each.

Where a verdict and its row are no transaction each attempt has a row of its own, since each may be
told of twice.
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
"""A reader that asks for few rows gets no more than so many attempts with each."""

_ID_BYTES: Final = 16
_TIME_BYTES: Final = 8
_SCATTER: Final = 0x9E3779B97F4A7C15
"""An odd number of 64 random bits."""

ID_DIGITS: Final = 2 * _ID_BYTES
_OPENING: Final = b'{"many":'
_PLACE = len(_OPENING)


class Bundle(Cells, frozen=True, gc=False):
    """What a row tells of many attempts: cells as an attempt's, one for all or one of each.

    many: how many. job: the ids of their jobs, in hexadecimal digits, see `ids_in`.
    enqueued_us, due_us, started_us, ended_us: as text those of each, see `instants`.
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
    """Make the row that tells of attempts that succeeded: it lies at the end of the last.

    Args: done: of one queue, shard and task, with fence, worker and time of their claims the same.
    """
    jobs, endings, started_us, ended_us = zip(*done, strict=True)
    first: Job = jobs[0]
    ids = b"".join(map(_id_of, jobs))
    enqueued_us = _instants_of(tuple(map(_enqueued_of, jobs)))
    lanes = list(map(_lane_of, jobs))
    if lanes.count(lanes[0]) == len(lanes):
        lanes = lanes[:1]
    body = encode(
        Bundle(
            len(jobs),
            ids.hex(),
            first.task,
            first.lane.queue,
            _one_or_each(list(map(tenant_of, lanes))),
            _one_or_each(list(map(_priority_of, lanes))),
            enqueued_us,
            _instants_of(tuple(map(_due_of, jobs))),
            first.claimed_us,
            _instants_of(started_us),
            _instants_of(ended_us),
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
    """Return the digests of results; most often all results are the same, as `null` is."""
    one = _one_or_each(values)
    return digest_of(one) if isinstance(one, bytes) else list(map(digest_of, values))


def _one_or_each(column: Sequence[Any]) -> Any:  # noqa: ANN401  (a cell of any kind)
    first = column[0]
    is_same = column[-1] == first and column.count(first) == len(column)
    return first if is_same else column


def _instants_of(column: tuple[int, ...]) -> int | str:
    """Write instants: as one number, or 16 hexadecimal digits of each, one behind the other.

    As few as decimal digits, and read without a look at each: 1.2 us a row on Spark against 2.0.
    """
    one = _one_or_each(column)
    return one if isinstance(one, int) else pack(f">{len(column)}q", *column).hex()


def instants(cell: int | str, many: int) -> bytes:
    """Read what instants are written as: 8 bytes of each, the highest first.

    Raises: ValueError: it is no such text.
    """
    return bytes.fromhex(cell) if isinstance(cell, str) else cell.to_bytes(8, signed=True) * many


def ids_in(digits: str) -> list[str]:
    """Tell ids that are written one behind the other, each in ID_DIGITS digits."""
    return [digits[start : start + ID_DIGITS] for start in range(0, len(digits), ID_DIGITS)]


def row_ids(jobs: bytes, fence: int, enqueued: bytes) -> bytes:
    """Make the row ids of the claims with one fence of some jobs: the same for every repeat.

    A row's id is the job's id XOR the digest of the fence XOR the scattered enqueue time: a job
    id that is enqueued again after its job ended starts again at the first fence. Computed for
    all jobs at once, because a digest for each job took 1.2 us.

    Args:
      jobs: the ids of the jobs, concatenated, as the result is.
      enqueued: when each was enqueued, 8 bytes each, in the same order; see `instants`.
    """
    digest = sha1(b"attempt %d" % fence, usedforsecurity=False).digest()[:_ID_BYTES]
    over = digest * (len(jobs) // _ID_BYTES)
    # Each time is multiplied by _SCATTER, 16 bytes each, where no product overflows into the next:
    # ids that are counted up, and times that follow each other, would otherwise cancel out.
    wide = bytearray(2 * len(enqueued))
    for place in range(_TIME_BYTES):
        wide[place + _TIME_BYTES :: _ID_BYTES] = enqueued[place::_TIME_BYTES]
    scattered = int.from_bytes(wide) * _SCATTER
    return (int.from_bytes(over) ^ int.from_bytes(jobs) ^ scattered).to_bytes(len(jobs))


def ids_of_bundle(row: Row, digits: str, fence: int, enqueued_us: int | str) -> bytes:
    """Make the row ids of the attempts of a bundle, concatenated.

    A bundle whose own id leaves the enqueue times out was written by a version whose ids of
    attempts did so too: they stay as they are, since copies of the history hold them.

    Args: digits, fence, enqueued_us: as its body has them.

    Raises: ValueError: the body is damaged.
    """
    jobs = bytes.fromhex(digits)
    many = len(jobs) // _ID_BYTES
    if row.id == derived(jobs, fence):
        return row_ids(jobs, fence, bytes(_TIME_BYTES * many))
    return row_ids(jobs, fence, instants(enqueued_us, many))


def is_bundle(row: Row) -> bool:
    """Tell whether a row of a history stands for many."""
    return row.body.startswith(_OPENING)


def size_of(row: Row) -> int:
    """Tell how many rows a row of a history stands for: 1 where it is no bundle."""
    body = row.body
    return int(body[_PLACE : body.index(b",")]) if is_bundle(row) else 1


def attempts_in(row: Row) -> list[tuple[bytes, Attempt]]:
    """Read what a row of a history tells: the id of each attempt's row, and the attempt.

    Raises: StoreCorrupt: it tells of none.
    """
    if not is_bundle(row):
        return [(row.id, decode(row.body, Attempt))]
    told = decode(row.body, Bundle)
    try:
        return _apart(row, told)
    except (ValueError, StructError) as error:
        raise StoreCorrupt(
            f"The row {row.id.hex()} of {row.stream} tells of no {told.many} attempts: {error}.",
            hint="Was it written by another program, or a newer dueline?",
        ) from error


def _apart(row: Row, told: Bundle) -> list[tuple[bytes, Attempt]]:
    jobs = ids_in(told.job)
    enqueued_us, due_us, started_us, ended_us = (
        unpack(f">{told.many}q", instants(cell, told.many))
        for cell in (told.enqueued_us, told.due_us, told.started_us, told.ended_us)
    )
    columns = (
        jobs, told.task, told.queue, told.tenant, told.priority, enqueued_us, due_us,
        told.claimed_us, started_us, ended_us, told.outcome, told.error, told.worker, told.fence,
        told.digest,
    )  # fmt: skip
    each = [one if isinstance(one, list | tuple) else repeat(one, told.many) for one in columns]
    attempts = [Attempt(*cells) for cells in zip(*each, strict=True)]
    if len(told.job) != told.many * ID_DIGITS:
        raise ValueError("ids are cut")
    ids = ids_in(ids_of_bundle(row, told.job, told.fence, told.enqueued_us).hex())
    return list(zip(map(bytes.fromhex, ids), attempts, strict=True))


def unbundled(row: Row) -> Iterator[Row]:
    """Make the rows that a row of a history stands for: itself where it is no bundle.

    Those of a bundle lie where it lies.
    """
    if not is_bundle(row):
        yield row
        return
    for row_id, attempt in attempts_in(row):
        yield row._replace(id=row_id, body=encode(attempt))
