"""Rows as bytes, as lua/row.lua describes them. Hot path: the benchmark `default`."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from struct import Struct
from typing import Final

from dueline.core.job import Job, State
from dueline.core.lane import Lane, Pointer
from dueline.core.store import Lease
from dueline.core.tuples import made

INLINE_BYTES_MAX: Final = 1024
"""Maximum size of a body in its row, in bytes: claims rewrite rows."""

BIAS: Final = 2**63
"""Added to times and buckets, so that the order of their bytes is that of the numbers."""

NEVER: Final = b"\xff" * 8
"""In place of the time at which a record expires."""

ALONE: Final = 1
LONG: Final = 2

_LEAST, _GREATEST = -(2**63), 2**63 - 1
_eight = Struct(">Q")
_head = Struct(">BQ16sQH")
_fence = Struct(">QIBH")
_tail = Struct(">QIQIIII")
_fixed = Struct(">QHH")
_lane = Struct(">QI")
_shard = Struct(">I")
_SHARD_BIAS: Final = 2**31


def pack8(number: int) -> bytes:
    """Return a time or bucket as 8 bytes; numbers out of range become the nearest."""
    return _eight.pack(min(max(number, _LEAST), _GREATEST) + BIAS)


def unpack8(data: bytes, place: int = 0) -> int:
    """Return a time or bucket from 8 bytes."""
    number: int = _eight.unpack_from(data, place)[0]
    return number - BIAS


@lru_cache(10_000)
def shard_key(queue: str, shard: int) -> bytes:
    """Return the key of a queue's or stream's shard."""
    name = queue.encode()
    return len(name).to_bytes(2) + name + _shard.pack(shard + _SHARD_BIAS)


@lru_cache(50_000)
def lane_key(lane: Lane) -> bytes:
    """Return the key of a lane; within a shard, keys sort like lanes."""
    place = _lane.pack(lane.bucket + BIAS, lane.priority + _SHARD_BIAS)
    return shard_key(lane.queue, lane.shard) + place + lane.tenant.encode()


@lru_cache(50_000)
def lane_of(key: bytes) -> Lane:
    """Return the lane of a key."""
    end = 2 + int.from_bytes(key[:2])
    bucket, priority = _lane.unpack_from(key, end + 4)
    return Lane(
        key[2:end].decode(),
        _shard.unpack_from(key, end)[0] - _SHARD_BIAS,
        bucket - BIAS,
        priority - _SHARD_BIAS,
        key[end + 16 :].decode(),
    )


def pointer_bytes(pointer: Pointer) -> bytes:
    """Return the member of a pointer in its shard's list."""
    lane = pointer.lane
    rest = lane_key(lane)[len(shard_key(lane.queue, lane.shard)) :]
    return pack8(pointer.listing) + rest


def pointer_of(shard: bytes, member: bytes) -> Pointer:
    """Return the pointer of a member of the list of a shard."""
    return Pointer(unpack8(member), lane_of(shard + member[8:]))


def place_of(at_us: int, job_id: bytes) -> bytes:
    """Return the place of a row in its lane, or in its stream."""
    return pack8(at_us) + job_id


def packed(job: Job) -> tuple[bytes, bytes]:
    """Return a job as a row, and its body if that is not in the row, else no bytes."""
    worker, error, lane = job.worker.encode(), job.error.encode(), lane_key(job.lane)
    task = job.task.encode()
    is_long = len(job.body) > INLINE_BYTES_MAX
    flags = ALONE * job.alone + LONG * is_long
    row = b"".join(
        (
            _head.pack(job.state, job.at_us + BIAS, job.token, job.claimed_us + BIAS, len(worker)),
            worker,
            _fence.pack(job.fence, job.crashes, flags, len(lane)),
            lane,
            _tail.pack(
                job.pos_us + BIAS, job.hop, job.due_us + BIAS, job.errors,
                len(job.opts), len(job.outcome), len(error),
            ),
            job.opts,
            job.outcome,
            error,
            _fixed.pack(job.enqueued_us + BIAS, job.codec, len(task)),
            task,
            b"" if is_long else job.body,
        )
    )  # fmt: skip
    return row, job.body if is_long else b""


def claim_head(lease: Lease) -> bytes:
    """Return the part that all rows of a claim share; its `at` is that of jobs that are due."""
    worker = lease.worker.encode()
    until_us = lease.now_us + lease.duration_us
    claimed_us = lease.now_us + BIAS
    head = _head.pack(State.CLAIMED, until_us + BIAS, lease.token, claimed_us, len(worker))
    return head + worker


def _cells(job_id: bytes, row: bytes, bodies: Mapping[bytes, bytes]) -> tuple[object, ...]:
    state, at, token, claimed, length = _head.unpack_from(row)
    place = 35 + length
    worker = row[35:place].decode() if length else ""
    fence, crashes, flags, length = _fence.unpack_from(row, place)
    place += 15
    end = place + length
    lane = lane_of(row[place:end])
    pos, hop, due, errors, in_opts, in_outcome, in_error = _tail.unpack_from(row, end)
    opts = end + 36
    outcome = opts + in_opts
    error = outcome + in_outcome
    fixed = error + in_error
    enqueued, codec, in_task = _fixed.unpack_from(row, fixed)
    task = fixed + 12
    body = task + in_task
    return (
        lane, pos - BIAS, job_id, hop, due - BIAS, enqueued - BIAS,
        row[task:body].decode(), codec,
        row[body:] if not flags & LONG else bodies.get(job_id, b""),
        row[opts:outcome], at - BIAS, fence, token, worker, claimed - BIAS, errors, crashes,
        flags & ALONE == ALONE, state, row[outcome:error],
        row[error:fixed].decode() if in_error else "",
    )  # fmt: skip


def pairs_of(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return a list of keys and values as a dictionary."""
    return dict(zip(islice(flat, 0, None, 2), islice(flat, 1, None, 2), strict=True))


def jobs_of(reply: Sequence[Sequence[bytes | None]]) -> list[Job | None]:
    """Return the jobs of an answer: their ids, their rows, the long bodies by id."""
    ids, rows, flat = reply
    bodies = pairs_of(flat)  # type: ignore[arg-type]
    return [
        None if row is None else Job._make(_cells(job_id, row, bodies))  # type: ignore[arg-type]
        for job_id, row in zip(ids, rows, strict=True)
    ]


def all_jobs_of(ids: Iterable[bytes], rows: Iterable[bytes], flat: Sequence[bytes]) -> list[Job]:
    """Return jobs that all have a row, see `jobs_of`."""
    bodies = pairs_of(flat)
    return made(Job, [_cells(job_id, row, bodies) for job_id, row in zip(ids, rows, strict=True)])
