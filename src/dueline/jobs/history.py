"""The history of jobs, as a stream. Hot path: the benchmark `history`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, Final, TypeVar

from dueline.core.attempt import (
    ARGUMENTS_BYTES_MAX,
    Attempt,
    Crashed,
    Done,
    Ended,
    EnqueuedEvent,
    digest_of,
)
from dueline.core.call_options import read_options, tags_of
from dueline.core.clock import SECOND_US
from dueline.core.codec import encode
from dueline.core.engine import Engine
from dueline.core.errors import StoreCorrupt
from dueline.core.ids import derived
from dueline.core.job import Job, State
from dueline.core.lane import LIMIT_MARK, Lane, has_costs, limits_text, living_queue, tenant_of
from dueline.core.limit_costs import limits_with_costs
from dueline.core.pagination import rows_in
from dueline.core.retry import WORKER_DIED
from dueline.core.store import Records, Row, Store, Streams
from dueline.core.tuples import field
from dueline.jobs.history_batch import (
    ENQUEUED,
    NO_CLAIM,
    NO_DIGEST,
    Lines,
    attempts_in,
    bundles_of,
    one_or_each,
    row_id_of,
)
from dueline.log import trimming
from dueline.tasks.sections import SECTION

HISTORY_SUFFIX = "!history"
RECORDED: Final = "recorded"
"""Outcome of the events of records of durable functions."""
NOTED: Final = "noted"
"""Outcome of the events of what an operator did to a job, if the job is not moved or ended."""
REFUSED: Final = "refused"
"""Outcome of the events of outcomes that the store refused, since their claims had ended."""
BESIDE: Final = frozenset({NOTED, REFUSED, SECTION})
"""Outcomes of events that leave the state of the job as it is."""
MOVED_FROM: Final = "moved from the queue "
"""Begins the text of the event of a job that was moved here from another queue."""
_SEEN_MAX = 100_000
"""Maximum number of rows in which repeats are recognized."""

Key = bytes | tuple[str, int, int]

T = TypeVar("T")

LATE_US = 5 * SECOND_US
"""How far back a follower reads again: rows are written some time after their end."""


def attempt_of(ended: Ended, *, outcome: str, error: str, again_us: int = 0) -> Attempt:
    """Return the history's row of an attempt that a verdict ends."""
    job, ending, started_us, ended_us = ended
    lane = job.lane
    digest = digest_of(ending.value) if isinstance(ending, Done) else ""
    return Attempt(  # by position: keyword arguments take three times as long
        job.id.hex(), job.task, lane.queue, tenant_of(lane), lane.priority, job.enqueued_us,
        job.due_us, job.claimed_us, started_us, ended_us, outcome, error, job.worker, job.fence,
        digest, _limits_text(job), again_us, _tags_text(job),
    )  # fmt: skip


def row_of(attempt: Attempt, job: Job) -> Row:
    """Encode an attempt's row: one for each claim, the same for every repeat."""
    if not attempt.worker:
        cause = job.id + job.enqueued_us.to_bytes(8, signed=True)  # one run of the job
        return row_of_event(attempt, job, cause)
    stream = attempt.queue + HISTORY_SUFFIX
    row_id = row_id_of(job.id, attempt.fence, attempt.enqueued_us)
    return Row(stream, job.lane.shard, attempt.ended_us, row_id, encode(attempt))


def happened(job: Job, what: str, at_us: int, *, error: str = "") -> Attempt:
    """Return the history's row of an event that is not an attempt: it has no worker."""
    lane = job.lane
    return Attempt(
        job.id.hex(), job.task, living_queue(lane.queue), tenant_of(lane), lane.priority,
        job.enqueued_us, job.due_us, 0, 0, at_us, what, error, "", job.fence, "", _limits_text(job),
        0, _tags_text(job),
    )  # fmt: skip


def row_of_record(job: Job, at_us: int, text: str, cause: bytes, *, took_us: int = 0) -> Row:
    """Return the row of a record of a durable function.

    Args:
        job: The function.
        at_us: When it was recorded.
        text: What it says; see `dueline.durable.log.described`.
        cause: Random, the same for a repeat of the write.
        took_us: How long the last attempt of a step ran; 0 if none is measured.
    """
    event = happened(job, RECORDED, at_us, error=text)
    if took_us:
        event.started_us = at_us - took_us
    return row_of_event(event, job, cause)


def last_state(events: Sequence[Attempt]) -> Attempt:
    """Return the event that says how a job is, of some with the latest first."""
    return next((event for event in events if event.outcome not in BESIDE), events[0])


def row_of_note(job: Job, at_us: int, text: str) -> Row:
    """Return the row of what an operator did to a job."""
    return row_beside(job, NOTED, at_us, text)


def row_beside(job: Job, what: str, at_us: int, text: str) -> Row:
    """Return the row of an event that leaves the state of its job as it is."""
    cause = job.id + at_us.to_bytes(8, signed=True) + text.encode()
    return row_of_event(happened(job, what, at_us, error=text), job, cause)


def row_of_refused(attempt: Attempt, job: Job) -> Row:
    """Return the row of an outcome that the store refused, under the fence of its claim.

    It is not an attempt: what ended the claim has recorded that.
    """
    text = f"The claim of {attempt.worker} had ended; its outcome was {attempt.outcome}."
    return row_beside(job, REFUSED, attempt.ended_us, text)


def record_deaths(engine: Engine, befores: Iterable[Job]) -> None:
    """Record attempts whose workers died, by the rows before the next claim."""
    settings = engine.catalog.settings
    noted = [
        (died(before), before) for before in befores if settings(before.lane.queue).history != "off"
    ]
    if noted:
        engine.store.append(rows_of_ended((), noted))


def is_end(event: Attempt) -> bool:
    """Return whether an event ended an attempt, or a job that had expired before one."""
    return bool(event.worker) or event.outcome == "expired"


def row_of_enqueue(job: Job, *, with_arguments: bool) -> Row:
    """Return the row of an enqueued job; its size is bounded for any size of arguments."""
    event = happened(job, ENQUEUED, job.enqueued_us)
    if with_arguments or job.opts:
        event = enqueued = EnqueuedEvent(*astuple(event))
        enqueued.options = _options_of(job)
        if with_arguments:
            enqueued.codec, enqueued.size = job.codec, len(job.body)
            enqueued.payload = _payload_of(job)
    row_id = row_id_of(job.id, NO_CLAIM, job.enqueued_us)
    stream = event.queue + HISTORY_SUFFIX
    return Row(stream, job.lane.shard, event.ended_us, row_id, encode(event))


def _options_of(job: Job) -> str:
    """Return the options of a job as JSON, without addresses of webhooks, which may be secret."""
    if any(name in job.opts for name in _ADDRESSES):
        with suppress(StoreCorrupt):
            return read_options(job.opts).changed(webhook="", deliver_to="").to_bytes().decode()
    return job.opts.decode()


def _payload_of(job: Job) -> bytes | None:
    return job.body if len(job.body) <= ARGUMENTS_BYTES_MAX else None


def rows_of_enqueued(jobs: Sequence[Job], *, with_arguments: bool) -> list[Row]:
    """Return the rows of jobs of one queue that a call enqueues; jobs of a shard share rows."""
    rows: list[Row] = []
    for (queue, shard), new in _by_shard(jobs, jobs).items():
        if len(new) == 1:
            rows.append(row_of_enqueue(new[0], with_arguments=with_arguments))
            continue
        lines = _columns_of(new, _FIELDS_OF_NEW) | {
            name: [value] * len(new) for name, value in _CELLS_OF_NEW.items()
        }
        lines["ended_us"] = lines["enqueued_us"]
        if with_arguments:
            lines["codec"] = [job.codec for job in new]
            lines["size"] = [len(job.body) for job in new]
            lines["payload"] = list(map(_payload_of, new))
        if any(job.opts for job in new):
            lines["options"] = list(map(_options_of, new))
        name = living_queue(queue)
        rows += bundles_of(name + HISTORY_SUFFIX, shard, name, lines)
    return rows


def row_of_event(event: Attempt, job: Job, cause: bytes) -> Row:
    """Encode an event's row: one for each cause, the same for every repeat."""
    row_id = derived(cause + event.outcome.encode(), NO_CLAIM)
    return Row(event.queue + HISTORY_SUFFIX, job.lane.shard, event.ended_us, row_id, encode(event))


def key_of(row_id: bytes, event: Attempt) -> Key:
    """Return what identifies a claim or an enqueue event in a history; otherwise the row's id.

    Two processes may have given rows of one claim different ids.
    """
    if event.worker:
        return event.job, event.enqueued_us, event.fence
    if event.outcome == ENQUEUED:
        return event.job, event.enqueued_us, NO_CLAIM
    return row_id


AttemptAndJob = tuple[Attempt, Job]
"""An attempt that did not succeed, as the history has it, and the row of its job."""


def rows_of_ended(done: Sequence[Ended], others: Sequence[AttemptAndJob] = ()) -> list[Row]:
    """Return the rows of attempts that end together; those of a shard share rows.

    Args:
        done: The successful attempts.
        others: Other attempts; those without a worker have rows of their own.
    """
    rows = [row_of(*ended) for ended in others if not ended[0].worker]
    if rows:
        others = [ended for ended in others if ended[0].worker]
    succeeded = _by_shard(list(map(_job_of, done)), done)
    failed = _by_shard([job for _, job in others], others) if others else {}
    for queue, shard in succeeded | failed:
        successes, rest = succeeded.get((queue, shard), ()), failed.get((queue, shard), ())
        if len(successes) + len(rest) == 1:
            rows += _rows_of_each(successes) or [row_of(*ended) for ended in rest]
            continue
        lines = _lines_of_done(successes) if successes else _lines_of(rest)
        if successes and rest:
            none = [""] * len(successes)  # tags, if they have no options
            lines = {
                name: [*lines.get(name, none), *column] for name, column in _lines_of(rest).items()
            }
        rows += bundles_of(queue + HISTORY_SUFFIX, shard, queue, lines)
    return rows


def _by_shard(jobs: Sequence[Job], values: Sequence[T]) -> dict[tuple[str, int], list[T]]:
    """Group what there is for each job by the queue and shard of the job."""
    groups: dict[tuple[str, int], list[T]] = {}
    rest = iter(values)
    for shard, run in groupby(map(_shard_of, map(_lane_of, jobs))):  # mostly one, or two
        groups.setdefault(shard, []).extend(islice(rest, len(list(run))))
    return groups


def _lines_of_done(done: Sequence[Ended]) -> Lines:
    jobs, endings, started_us, ended_us = zip(*done, strict=True)
    values = list(map(_value_of, endings))
    shared = one_or_each(values)
    digests = (
        [_digest(digest_of(shared))] * len(jobs)
        if isinstance(shared, bytes)
        else [_digest(digest_of(value)) for value in values]
    )
    return {
        **_columns_of(jobs, _FIELDS_OF_CLAIMED),
        "started_us": started_us, "ended_us": ended_us, "digest": digests,
        "outcome": ["done"] * len(jobs), "error": [""] * len(jobs), "again_us": [0] * len(jobs),
    }  # fmt: skip


def _lines_of(others: Sequence[AttemptAndJob]) -> Lines:
    cells = zip(*[_cells_of_attempt(attempt) for attempt, _ in others], strict=True)
    lines: dict[str, Sequence[Any]] = dict(zip(_FIELDS_OF_ATTEMPT, cells, strict=True))
    lines["job"] = list(map(bytes.fromhex, lines["job"]))
    lines["digest"] = list(map(_digest, lines["digest"]))
    return lines


def _columns_of(jobs: Sequence[Job], names: Sequence[str]) -> dict[str, Sequence[Any]]:
    """Return the ids, lanes and fields of jobs, by the columns of the history."""
    ids, *cells = zip(*map(field(Job, "id", *names), jobs), strict=True)
    columns = {"job": ids, **_lane_columns(jobs), **dict(zip(names, cells, strict=True))}
    if any(map(_opts_of, jobs)):
        columns["tags"] = list(map(_tags_text, jobs))
    return columns


def _lane_columns(jobs: Sequence[Job]) -> dict[str, Sequence[Any]]:
    """Return the tenants, priorities and limits of jobs."""
    lanes = list(map(_lane_of, jobs))
    shared = one_or_each(lanes)
    known = {
        lane: (tenant_of(lane), lane.priority, limits_text(lane))
        for lane in ([shared] if isinstance(shared, Lane) else set(lanes))
    }
    if isinstance(shared, Lane):
        columns: Sequence[Sequence[Any]] = [[cell] * len(jobs) for cell in known[shared]]
    else:
        columns = list(zip(*map(known.__getitem__, lanes), strict=True))
    if any(map(has_costs, known)):
        columns = [*columns[:2], list(map(_limits_text, jobs))]
    return dict(zip(("tenant", "priority", "limits"), columns, strict=True))


def _limits_text(job: Job) -> str:
    """Return the limits of a job as one text, with its numbers of units."""
    if has_costs(job.lane):
        return LIMIT_MARK.join(limits_with_costs(job))
    return limits_text(job.lane)


def _tags_text(job: Job) -> str:
    """Return the tags of a job as one text."""
    return LIMIT_MARK.join(tags_of(job)) if _TAGS in job.opts else ""


def _digest(digits: str) -> bytes:
    return bytes.fromhex(digits) or NO_DIGEST


_job_of = field(Ended, "job")
_value_of = field(Done, "value")
_FIELDS_OF_NEW = ("task", "due_us", "enqueued_us", "fence")
_FIELDS_OF_CLAIMED = (*_FIELDS_OF_NEW, "claimed_us", "worker")
_CELLS_OF_NEW = {
    "claimed_us": 0, "started_us": 0, "outcome": ENQUEUED, "error": "", "worker": "",
    "digest": NO_DIGEST, "again_us": 0,
}  # fmt: skip
"""What the events of new jobs have in common."""

_FIELDS_OF_ATTEMPT = tuple(name for name in Attempt.__dataclass_fields__ if name != "queue")
_cells_of_attempt = attrgetter(*_FIELDS_OF_ATTEMPT)
_lane_of = field(Job, "lane")
_opts_of = field(Job, "opts")
_TAGS = b'"tags":'
_ADDRESSES = (b'"webhook":', b'"deliver_to":')
_shard_of = field(Lane, "queue", "shard")


def _rows_of_each(done: Sequence[Ended]) -> list[Row]:
    return [row_of(attempt_of(attempt, outcome="done", error=""), attempt.job) for attempt in done]


def died(before: Job) -> Attempt:
    """Return the history's row of an attempt whose worker died; the next claimer writes it.

    A worker holds jobs that it has not started, which another job's crash takes along: they have
    not crashed, and were given back.

    Args:
        before: The row as the dead worker's claim left it; the attempt ended with its lease.
    """
    if before.state == State.STARTED:
        return died_as(before, "crashed", WORKER_DIED)
    text = f"{WORKER_DIED.rstrip('.')}, before it noted that the job had started."
    return died_as(before, "given_back", text)


def died_as(before: Job, outcome: str, error: str) -> Attempt:
    """Return the row of an attempt whose worker died, with this outcome and error."""
    ended = Ended(before, Crashed(error), started_us=0, ended_us=before.at_us)
    return attempt_of(ended, outcome=outcome, error=error)


def attempts(
    streams: Streams,
    queue: str,
    shards: int,
    *,
    since_us: int | None = None,
    everything: bool = False,
    until_us: int | None = None,
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
        until_us: Rows after this time are skipped.
    """
    for shard in range(shards):
        for _, event in events(streams, queue, shard, since_us=since_us, until_us=until_us):
            if everything or event.worker:
                yield event


def events(
    streams: Streams,
    queue: str,
    shard: int,
    *,
    since_us: int | None = None,
    until_us: int | None = None,
) -> Iterator[tuple[bytes, Attempt]]:
    """Yield the events of a shard of a queue, each once, with the ids of their rows."""
    seen: set[Key] = set()
    after = None if since_us is None else (since_us, b"")
    stream = queue + HISTORY_SUFFIX
    for row in rows_in(streams, stream, shard, after=after, until_us=until_us):
        for row_id, event in attempts_in(row):
            key = key_of(row_id, event)
            if key in seen:
                continue
            if len(seen) >= _SEEN_MAX:
                seen.clear()
            seen.add(key)
            yield row_id, event


def forgotten_until(records: Records, queue: str) -> int:
    """Return the time of the last event that was deleted of a queue's history; 0 for none."""
    places = trimming.places(records, queue + HISTORY_SUFFIX).values()
    return max((at_us for at_us, _ in places), default=0)


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
    """Reads the attempts of queues as they end, and the expiries of jobs without one.

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
        attempts: list[Attempt] = []
        for queue, number in shards.items():
            for shard in range(number):
                stream = queue + HISTORY_SUFFIX
                for row in rows_in(self._streams, stream, shard, after=(after_us, b"")):
                    attempts += self._new(row)
        attempts.sort(key=lambda attempt: attempt.ended_us)
        if attempts:
            self._newest_us = max(self._newest_us, attempts[-1].ended_us)
        return attempts

    def _new(self, row: Row) -> list[Attempt]:
        place = row.at_us, row.id
        if place in self._seen:
            return []
        each = {key_of(row_id, attempt): attempt for row_id, attempt in attempts_in(row)}
        new = [
            attempt for key, attempt in each.items() if is_end(attempt) and key not in self._seen
        ]
        self._seen |= dict.fromkeys((place, *each), row.at_us)
        return new
