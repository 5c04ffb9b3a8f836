"""The history of jobs, as a stream."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import astuple
from itertools import groupby, islice
from typing import Any

from dueline.core.attempt import (
    ARGUMENTS_BYTES_MAX,
    Attempt,
    Crashed,
    Done,
    Ended,
    EnqueuedEvent,
    digest_of,
)
from dueline.core.clock import SECOND_US, Clock, StoreTime
from dueline.core.codec import encode
from dueline.core.ids import derived
from dueline.core.job import Job
from dueline.core.lane import Lane, living_queue, tenant_of
from dueline.core.pagination import rows_in
from dueline.core.store import Row, Store, Streams
from dueline.core.tuples import field
from dueline.jobs.history_batch import ATTEMPTS_MAX, attempts_in, bundle_of, instants, row_ids
from dueline.log import trimming
from dueline.log.reader import ShardReader

HISTORY_SUFFIX = "!history"
_PAGE = 1000
_SEEN_MAX = 100_000
"""Maximum number of rows in which repeats are recognized."""

_NO_CLAIM = -1

Key = bytes | tuple[str, int, int]

LATE_US = 5 * SECOND_US
"""How far back a follower reads again: rows are written some time after their end."""


def attempt_of(ended: Ended, *, outcome: str, error: str) -> Attempt:
    """Return the history's row of an attempt that a verdict ends."""
    job, ending, started_us, ended_us = ended
    lane = job.lane
    digest = digest_of(ending.value) if isinstance(ending, Done) else ""
    return Attempt(  # by position: keyword arguments take three times as long
        job.id.hex(), job.task, lane.queue, tenant_of(lane), lane.priority, job.enqueued_us,
        job.due_us, job.claimed_us, started_us, ended_us, outcome, error, job.worker, job.fence,
        digest,
    )  # fmt: skip


def row_of(attempt: Attempt, job: Job) -> Row:
    """Encode an attempt's row: one for each claim, the same for every repeat."""
    if not attempt.worker:
        return row_of_event(attempt, job, _once_enqueued(job))
    stream = attempt.queue + HISTORY_SUFFIX
    row_id = row_ids(job.id, attempt.fence, attempt.enqueued_us.to_bytes(8, signed=True))
    return Row(stream, job.lane.shard, attempt.ended_us, row_id, encode(attempt))


def happened(job: Job, what: str, at_us: int, *, error: str = "") -> Attempt:
    """Return the history's row of an event that is not an attempt: it has no worker."""
    lane = job.lane
    return Attempt(
        job.id.hex(), job.task, living_queue(lane.queue), tenant_of(lane), lane.priority,
        job.enqueued_us, job.due_us, 0, 0, at_us, what, error, "", job.fence,
    )  # fmt: skip


def row_of_enqueue(job: Job, *, with_arguments: bool) -> Row:
    """Return the row of an enqueued job; its size is bounded for any size of arguments."""
    event = happened(job, "enqueued", job.enqueued_us)
    if with_arguments:
        event = enqueued = EnqueuedEvent(*astuple(event))
        enqueued.codec, enqueued.size = job.codec, len(job.body)
        enqueued.payload = job.body if enqueued.size <= ARGUMENTS_BYTES_MAX else None
    return row_of_event(event, job, _once_enqueued(job))


def _once_enqueued(job: Job) -> bytes:
    """Return what identifies one run of a job id, which may be enqueued again after its end."""
    return job.id + instants(job.enqueued_us, 1)


def row_of_event(event: Attempt, job: Job, cause: bytes) -> Row:
    """Encode an event's row: one for each cause, the same for every repeat."""
    row_id = derived(cause + event.outcome.encode(), _NO_CLAIM)
    return Row(event.queue + HISTORY_SUFFIX, job.lane.shard, event.ended_us, row_id, encode(event))


def _key_of(row_id: bytes, event: Attempt) -> Key:
    """Return what identifies a claim or an enqueue event in a history; otherwise the row's id.

    Versions that ran at the same time may have given rows of one claim different ids, and an older
    version may have given rows of two runs of a job the same ids.
    """
    if event.worker:
        return event.job, event.enqueued_us, event.fence
    if event.outcome == "enqueued":
        return event.job, event.enqueued_us, _NO_CLAIM
    return row_id


def rows_of_done(done: Sequence[Ended]) -> list[Row]:
    """Return the rows of successful attempts.

    They contain what `row_of` does; attempts that were claimed together share rows.
    """
    return [
        _row_of_some(same[start : start + ATTEMPTS_MAX])
        for same in _alike(done)
        for start in range(0, len(same), ATTEMPTS_MAX)
    ]


def _alike(done: Sequence[Ended]) -> Collection[Sequence[Ended]]:
    """Group attempts that may share a row."""
    jobs = list(map(_job_of, done))
    kinds = zip(map(_claim_of, jobs), map(_shard_of, map(_lane_of, jobs)), strict=True)
    alike: dict[tuple[Any, ...], list[Ended]] = {}
    rest = iter(done)
    for kind, run in groupby(kinds):  # mostly one, or two
        alike.setdefault(kind, []).extend(islice(rest, len(list(run))))
    return alike.values()


_job_of = field(Ended, "job")
_claim_of = field(Job, "task", "fence", "worker", "claimed_us")
_lane_of = field(Job, "lane")
_shard_of = field(Lane, "queue", "shard")


def _row_of_some(done: Sequence[Ended]) -> Row:
    if len(done) == 1:
        return row_of(attempt_of(done[0], outcome="done", error=""), done[0].job)
    return bundle_of(done, done[0].job.lane.queue + HISTORY_SUFFIX)


def died(
    before: Job, *, outcome: str = "crashed", error: str = "The worker died, or lost its lease."
) -> Attempt:
    """Return the history's row of an attempt whose worker died; the next claimer writes it.

    Args:
        before: The row as the dead worker's claim left it; the attempt ended with its lease.
        outcome: Its outcome in the history.
        error: Its error.
    """
    ended = Ended(before, Crashed(error), started_us=0, ended_us=before.at_us)
    return attempt_of(ended, outcome=outcome, error=error)


def attempts(
    streams: Streams,
    queue: str,
    shards: int,
    *,
    since_us: int | None = None,
    everything: bool = False,
) -> Iterator[Attempt]:
    """Yield a queue's attempts, shard by shard, each in the order of their ends.

    A claim is yielded once (rule F3): a worker that ended it too late may have recorded it in
    addition to the next claimer.

    Args:
        streams: The store.
        queue: The queue.
        shards: Number of its shards.
        since_us: Ends before this time are skipped.
        everything: Include other events, in queues whose history is `all`.
    """
    for shard in range(shards):
        seen: set[Key] = set()
        after = None if since_us is None else (since_us, b"")
        for row in rows_in(streams, queue + HISTORY_SUFFIX, shard, after=after):
            for row_id, one in attempts_in(row):
                key = _key_of(row_id, one)
                if key in seen:
                    continue
                if len(seen) >= _SEEN_MAX:
                    seen.clear()
                seen.add(key)
                if everything or one.worker:
                    yield one


def forget(store: Store, queue: str, shards: int, *, before_us: int, version: bytes) -> None:
    """Delete a queue's history before a time, in whole buckets; any process may call this.

    Args:
        store: The store.
        queue: The queue.
        shards: Number of its shards.
        before_us: The time.
        version: Random, for the record of this.
    """
    for shard in range(shards):
        trimming.trim(store, queue + HISTORY_SUFFIX, shard, before_us=before_us, version=version)


class Follower:
    """Reads the attempts of queues as they end.

    An attempt that is recorded more than LATE_US after its end is missed: its worker died, or could
    not reach the store for that long.
    """

    def __init__(self, streams: Streams, *, since_us: int) -> None:
        self._streams = streams
        self._since_us = since_us
        self._newest_us = since_us
        self._seen: dict[Key | tuple[int, bytes], int] = {}

    def read(self, shards: Mapping[str, int]) -> list[Attempt]:
        """Return what ended and was not returned before, in the order of the ends.

        Args:
            shards: Number of shards of each queue to read.
        """
        after_us = max(self._since_us, self._newest_us - LATE_US)
        self._seen = {key: at_us for key, at_us in self._seen.items() if at_us >= after_us}
        found: list[Attempt] = []
        for queue, number in shards.items():
            for shard in range(number):
                stream = queue + HISTORY_SUFFIX
                for row in rows_in(self._streams, stream, shard, after=(after_us, b"")):
                    found += self._new(row)
        found.sort(key=lambda one: one.ended_us)
        if found:
            self._newest_us = max(self._newest_us, found[-1].ended_us)
        return found

    def _new(self, row: Row) -> list[Attempt]:
        place = row.at_us, row.id
        if place in self._seen:
            return []
        each = {_key_of(row_id, one): one for row_id, one in attempts_in(row)}
        new = [one for key, one in each.items() if one.worker and key not in self._seen]
        self._seen |= dict.fromkeys((place, *each), row.at_us)
        return new


class Events:
    """Reads all events of the jobs of queues, each once, and misses none.

    It reads up to the watermarks: rows that are written late are placed after them.
    """

    def __init__(self, store: Store, *, since_us: int, time: StoreTime, clock: Clock) -> None:
        self._store = store
        self._since_us = since_us
        self._time = time
        self._clock = clock
        self._known: dict[Key, None] = {}
        self._readers: dict[tuple[str, int], ShardReader] = {}

    def read(self, shards: Mapping[str, int]) -> list[Attempt]:
        """Return what is new, in the order in which it happened.

        Args:
            shards: Number of shards of each queue to read.
        """
        found: list[Attempt] = []
        for queue, number in shards.items():
            for shard in range(number):
                reader = self._readers.get((queue, shard)) or self._open(queue, shard)
                while rows := reader.read(_PAGE):
                    found += [one for row in rows for one in self._new(row)]
        return sorted(found, key=lambda one: one.ended_us)

    def _new(self, row: Row) -> list[Attempt]:
        """Return the attempts of a row that were not returned before, in another row (rule F3)."""
        each = {_key_of(row_id, one): one for row_id, one in attempts_in(row)}
        new = [one for key, one in each.items() if key not in self._known]
        self._known |= dict.fromkeys(each)
        if len(self._known) > _SEEN_MAX:
            self._known = dict.fromkeys(list(self._known)[_SEEN_MAX // 2 :])
        return new

    def _open(self, queue: str, shard: int) -> ShardReader:
        reader = self._readers[queue, shard] = ShardReader(
            self._store,
            queue + HISTORY_SUFFIX,
            shard,
            after=(self._since_us, b""),
            time=self._time,
            clock=self._clock,
        )
        return reader
