"""Requests of operators to workers: take no new jobs, resume, stop, answer.

A request is a record in the inbox of its worker, the partition that also has its cancel requests. A
worker that holds jobs reads its inbox every second. An idle one reads it after the settings of a
queue that it serves were stored again, which its polls notice without a read of their own (rule
O1).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from dueline.coordination.worker_registry import Presence
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.codec import decode, encode
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, NotFound, StoreCorrupt
from dueline.core.job import Job, JobId
from dueline.core.readable_records import readable
from dueline.core.store import Delete, Put, Record, Records
from dueline.core.wakeup import Wakeup, Wakeups

ANSWERS: Final = "worker-answers"
ANSWERS_KEEP_US: Final = 60 * SECOND_US
EFFECTIVE_US: Final = 5 * SECOND_US
"""Time within which a worker of a store that is available does what it is asked to."""

JOBS_MAX: Final = 100
"""Maximum number of jobs that an answer names."""

_PREFIX: Final = "operator/"
_AWAITED: Final = "awaited/"

RequestKind = Literal["quiet", "resume", "stop", "stop-now", "ping"]


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """A request to one worker. key: its record; the same of all workers of one command."""

    key: str
    kind: RequestKind
    asked_us: int


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """What a worker answers after it has done what it was asked to.

    Attributes:
      worker: Its id.
      request: The key of the request.
      at_us: When it answered, in microseconds UTC.
      started_us: When it started.
      memory_bytes: Resident memory of its process and their children; 0 if unknown.
      running: Number of handlers that run.
      jobs: Id, task and claim time of the first of their jobs.
      is_quiet: Whether it claims nothing until it is resumed.
      is_draining: Whether it stops.
    """

    worker: str
    request: str
    at_us: int
    started_us: int
    memory_bytes: int
    running: int
    jobs: tuple[tuple[str, str, int], ...]
    is_quiet: bool
    is_draining: bool


def inbox_of(worker: str) -> str:
    """Return the partition of a worker's requests."""
    return f"cancels-at/{worker}"


def is_request(record: Record) -> bool:
    """Return whether a record of an inbox is a request of an operator."""
    return record.key.startswith(_PREFIX)


def is_awaited(record: Record) -> bool:
    """Return whether a record of an inbox says that others wait for a job of the worker."""
    return record.key.startswith(_AWAITED)


def note_awaited(engine: Engine, job: Job) -> None:
    """Ask the worker that holds a job to release those that wait for it (rule J3)."""
    expires_us = engine.time.latest_us() + DAY_US
    put = Put(f"{_AWAITED}{job.id.hex()}", engine.ids.token(), b"", expires_us=expires_us)
    engine.store.commit(inbox_of(job.worker), (put,))


def awaited_in(inbox: Sequence[Record]) -> list[JobId]:
    """Return the jobs for which others wait."""
    keys = [record.key for record in inbox if is_awaited(record)]
    return [JobId(bytes.fromhex(key.removeprefix(_AWAITED))) for key in keys]


def requests_in(inbox: Sequence[Record]) -> list[WorkerRequest]:
    """Return the requests of operators in order; those of newer versions are skipped."""
    requests = []
    for record in filter(is_request, inbox):
        try:
            request = decode(record.value, WorkerRequest)
        except StoreCorrupt:
            continue
        if request.kind in get_args(RequestKind):
            requests.append(request)
    return requests


def note(records: Records, worker: str, inbox: Sequence[Record]) -> None:
    """Delete what a worker has read, other than requests to cancel its jobs."""
    deletes = [Delete(record.key) for record in inbox if is_request(record) or is_awaited(record)]
    if deletes:
        records.commit(inbox_of(worker), deletes)


def send(engine: Engine, kind: RequestKind, workers: Sequence[Presence]) -> str:
    """Send a request to workers; return its key, under which they answer.

    Raises:
      BadInput: one of the workers claims by hand, and reads no requests; nothing was sent.
    """
    for worker in workers:
        if not worker.takes_requests:
            raise BadInput(
                f"{worker.worker} is a program that claims by hand: it reads no requests.",
                hint="Stop that program.",
            )
    now_us = engine.time.latest_us()
    request = WorkerRequest(f"{now_us:016x}{engine.ids.token().hex()[:8]}", kind, now_us)
    put = Put(
        f"{_PREFIX}{request.key}", engine.ids.token(), encode(request), expires_us=now_us + DAY_US
    )
    for presence in workers:
        engine.store.commit(inbox_of(presence.worker), (put,))
    for queue in sorted({presence.queues[0] for presence in workers}):
        engine.catalog.touch(queue)
    notify(workers, engine.wakeups)
    return request.key


def notify(workers: Sequence[Presence], wakeups: Wakeups) -> None:
    """Notify workers that there are requests for them."""
    wakeups.wake([Wakeup(worker.worker) for worker in workers])


def chosen(workers: Sequence[Presence], worker: str | None) -> Sequence[Presence]:
    """Return one live worker by its id or the first letters of it; all that listen for None.

    Raises:
      NotFound: No live worker has this id.
      BadInput: Several have it.
    """
    if worker is None:
        return [live for live in workers if live.takes_requests]
    exact = [live for live in workers if live.worker == worker]
    matches = exact or [live for live in workers if worker and live.worker.startswith(worker)]
    if not matches:
        raise NotFound(f"No live worker {worker:.80}.", hint="See `dueline workers list`.")
    if len(matches) > 1:
        raise BadInput(f"Several live workers begin with {worker:.80}.", hint="Write more of it.")
    return matches


def write_answer(engine: Engine, answer: WorkerAnswer) -> None:
    """Store what a worker answers; the next answer replaces it."""
    expires_us = answer.at_us + ANSWERS_KEEP_US
    put = Put(answer.worker, engine.ids.token(), encode(answer), expires_us=expires_us)
    engine.store.commit(ANSWERS, (put,))


def answers(records: Records) -> dict[str, WorkerAnswer]:
    """Return the last answers of workers, those of the last minute."""
    return {answer.worker: answer for _, answer in readable(records, ANSWERS, WorkerAnswer)}
