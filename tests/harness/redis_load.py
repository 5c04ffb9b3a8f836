"""Inserts and a drain on a store whose server is disturbed, and what must hold afterwards."""

import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from itertools import count
from typing import NamedTuple

from dueline import Dueline
from dueline import Job as Handle
from dueline.api.connect import open_store
from dueline.core.errors import StoreUnavailable, Unknown
from dueline.core.job import Job, JobId
from dueline.core.store import (
    NO_VERSION,
    Commit,
    Delete,
    Drop,
    Group,
    Lease,
    Put,
    Store,
    Want,
)
from dueline.store_tests.calls import LEASE_US, NOW_US, id_of, lane_of, new_job, row_of, token_of

JOBS_OF_A_CALL = 20
BACKLOG_MAX = 10_000
"""Number of jobs that wait above which no more are inserted."""

PROGRESS = 500
"""Number of jobs that end before, between and after disturbances."""


Span = tuple[float, float]
"""Monotonic times, in seconds."""


class Load(NamedTuple):
    """What became of the jobs of a load.

    Attributes:
      acknowledged: Number of jobs whose insert was acknowledged.
      ended: Number of jobs that ended.
      lost: When the insert of each job was acknowledged that is gone without an end.
      again: When each job ended first that was there again after its end.
      claims: Number of claims.
    """

    acknowledged: int
    ended: int
    lost: Sequence[float]
    again: Sequence[float]
    claims: int

    def outside(self, spans: Collection[Span]) -> list[float]:
        """Return the times of losses outside some spans."""
        return [
            at_s
            for at_s in (*self.lost, *self.again)
            if not any(first_s <= at_s <= last_s for first_s, last_s in spans)
        ]


class Drained:
    """What a drain has seen.

    Attributes:
      ended_s: Times of the ends of each job.
      fences: The greatest fence of each job.
      claims: Number of claims.
    """

    def __init__(self) -> None:
        self.ended_s: dict[JobId, list[float]] = {}
        self.fences: dict[JobId, int] = {}
        self.claims = 0

    def claimed(self, jobs: Sequence[Job]) -> None:
        """Note claims; a fence never goes back."""
        for job in jobs:
            self.claims += 1
            assert job.fence > self.fences.get(job.id, 0), "a fence went back"
            self.fences[job.id] = job.fence


def end_of(job: Job) -> Commit:
    """Return the write that notes the end of a job."""
    return Commit(job.id[-1:].hex(), [Put(job.id.hex(), b"1", b"")])


def absent(job: Job) -> Commit:
    """Return the condition that a job has not ended."""
    return Commit(job.id[-1:].hex(), [Delete(job.id.hex(), expect=NO_VERSION)])


def insert(
    store: Store, stop: threading.Event, acknowledged: dict[JobId, float], seen: Drained
) -> None:
    """Insert jobs until asked to stop; a call whose outcome is unknown is repeated."""
    for call in count():
        while len(acknowledged) > len(seen.ended_s) + BACKLOG_MAX and not stop.is_set():
            stop.wait(0.01)
        if stop.is_set():
            break
        first = call * JOBS_OF_A_CALL
        jobs = [new_job(first + number, body=b"x" * 100) for number in range(JOBS_OF_A_CALL)]
        is_repeated = False
        while not stop.is_set():
            try:
                if is_repeated:  # rule E7
                    store.together([Group(commits=[absent(job)], jobs=[job]) for job in jobs])
                else:
                    store.add(jobs)
            except StoreUnavailable:
                is_repeated = True
                stop.wait(0.02)
            else:
                acknowledged.update((job.id, time.monotonic()) for job in jobs)
                break


def drain(store: Store, stop: threading.Event, seen: Drained, now_us: int) -> None:
    """End jobs, each together with a row of a stream, until asked to stop."""
    for number in count(1):
        if stop.is_set():
            break
        lease = Lease(now_us + number, LEASE_US, "worker", token_of(number))
        try:
            jobs = store.claim([Want(lane_of(), 50)], limit=50, lease=lease).jobs
            seen.claimed(jobs)
            numbers = [int.from_bytes(job.id) for job in jobs]
            groups = [
                Group(verdicts=[Drop(job)], commits=[end_of(job)], rows=[row_of(number)])
                for job, number in zip(jobs, numbers, strict=True)
            ]
            held = store.together(groups)
        except Unknown:
            continue  # these jobs are due again, or ended
        except StoreUnavailable:
            stop.wait(0.02)
            continue
        for job, is_held in zip(jobs, held, strict=True):
            if is_held:
                seen.ended_s.setdefault(job.id, []).append(time.monotonic())


def found_in(store: Store, ids: Sequence[JobId]) -> set[JobId]:
    """Return the ids of jobs that are there."""
    parts = [ids[first : first + PROGRESS] for first in range(0, len(ids), PROGRESS)]
    return {row.id for part in parts for row in store.find(part) if row is not None}


def disturb_during_load(
    url: str, disturb: Callable[[], object], *, times: int, may_lose: bool = False
) -> Load:
    """Disturb a server; return what became of the jobs.

    Args:
      url: The store.
      disturb: Disturbs the server, and returns when it is well.
      times: How often.
      may_lose: Whether acknowledged writes may be lost.

    Raises:
      AssertionError: An acknowledged job is lost, or one has ended twice; or a fence went back.
    """
    stop, acknowledged, seen = threading.Event(), dict[JobId, float](), Drained()
    failures: list[Exception] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001  (raised below)
            failures.append(error)
            stop.set()

    def progress(wanted: int) -> None:
        while len(seen.ended_s) < wanted and not failures:
            stop.wait(0.01)

    with closing(open_store(url)) as store:
        works = (
            lambda: insert(store, stop, acknowledged, seen),
            lambda: drain(store, stop, seen, NOW_US),
        )
        threads = [threading.Thread(target=run, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        try:
            for _ in range(times):
                progress(len(seen.ended_s) + PROGRESS)
                disturb()
            progress(len(seen.ended_s) + PROGRESS)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        if failures:
            raise failures[0]
        left = found_in(store, list(acknowledged))
        rows, after = set[JobId](), None
        while page := store.tail("log", 0, after=after, limit=1000).rows:
            rows.update(id_of(int.from_bytes(row.id)) for row in page)
            after = (page[-1].at_us, page[-1].id)
    ended = seen.ended_s
    lost = acknowledged.keys() - ended.keys() - rows - left
    again = {job_id for job_id, times_s in ended.items() if len(times_s) > 1 or job_id in left}
    if not may_lose:
        assert not again, "a job has ended twice, or has ended and is there"
        assert ended.keys() <= rows, "the row of an end is lost"
        assert not lost, "an acknowledged job is lost"
        assert not rows & left, "a job has ended, and is there"
    return Load(
        len(acknowledged),
        len(ended),
        [acknowledged[job_id] for job_id in lost],
        [ended[job_id][0] for job_id in again],
        seen.claims,
    )


def run_around(url: str, disturb: Callable[[], object]) -> list[int]:
    """Run the jobs 1 and 2, before and after a disturbance; return those that ran."""
    app = Dueline(url)
    ran = list[int]()

    @app.task(name="note")
    def note(number: int) -> int:
        ran.append(number)
        return number

    def enqueue(number: int) -> Handle[int]:
        while True:  # as a caller does; the unique key makes a repetition harmless
            with suppress(StoreUnavailable):
                return note.using(unique=f"note {number}").enqueue(number)

    with app.worker():
        assert enqueue(1).result(timeout=30) == 1
        disturb()
        assert enqueue(2).result(timeout=60) == 2
    app.close()
    return ran
