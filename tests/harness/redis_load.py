"""Inserts and a drain on a store whose server is disturbed, and what must hold afterwards."""

import threading
from collections.abc import Callable
from contextlib import closing
from itertools import count

from dueline.api.connect import open_store
from dueline.core.errors import StoreUnavailable, Unknown
from dueline.core.job import JobId
from dueline.core.store import Drop, Group, Lease, Store, Want
from dueline.store_tests.calls import LEASE_US, NOW_US, id_of, lane_of, new_job, row_of, token_of

JOBS_OF_A_CALL = 20
PROGRESS = 500
"""Number of jobs that end before, between and after disturbances."""


def insert(store: Store, stop: threading.Event, acknowledged: set[JobId]) -> None:
    """Insert jobs until asked to stop; a call whose outcome is unknown is repeated."""
    for call in count():
        if stop.is_set():
            break
        first = call * JOBS_OF_A_CALL
        jobs = [new_job(first + number, body=b"x" * 100) for number in range(JOBS_OF_A_CALL)]
        while not stop.is_set():
            try:
                store.add(jobs)
            except StoreUnavailable:
                stop.wait(0.02)
            else:
                acknowledged.update(job.id for job in jobs)
                break


def drain(store: Store, stop: threading.Event, ended: dict[JobId, int], now_us: int) -> None:
    """End jobs, each together with a row of a stream, until asked to stop."""
    for number in count(1):
        if stop.is_set():
            break
        lease = Lease(now_us + number, LEASE_US, "worker", token_of(number))
        try:
            jobs = store.claim([Want(lane_of(), 50)], limit=50, lease=lease).jobs
            numbers = [int.from_bytes(job.id) for job in jobs]
            groups = [
                Group(verdicts=[Drop(job)], rows=[row_of(number)])
                for job, number in zip(jobs, numbers, strict=True)
            ]
            held = store.together(groups)
        except Unknown:
            continue  # these jobs are due again, or ended
        except StoreUnavailable:
            stop.wait(0.02)
            continue
        for job, is_held in zip(jobs, held, strict=True):
            ended[job.id] = ended.get(job.id, 0) + is_held


def disturb_during_load(url: str, disturb: Callable[[], object], *, times: int) -> int:
    """Disturb a server; return how many jobs ended that a process had inserted.

    Raises:
      AssertionError: An acknowledged job is lost, or one has ended twice.
    """
    stop, acknowledged = threading.Event(), set[JobId]()
    ended: dict[JobId, int] = {}

    def progress(wanted: int) -> None:
        while len(ended) < wanted:
            stop.wait(0.01)

    with closing(open_store(url)) as store:
        threads = [
            threading.Thread(target=insert, args=(store, stop, acknowledged)),
            threading.Thread(target=drain, args=(store, stop, ended, NOW_US)),
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in range(times):
                progress(len(ended) + PROGRESS)
                disturb()
            progress(len(ended) + PROGRESS)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert max(ended.values()) == 1
        left = {job_id for job_id in acknowledged if store.find([job_id])[0] is not None}
        rows, after = set[JobId](), None
        while page := store.tail("log", 0, after=after, limit=1000).rows:
            rows.update(id_of(int.from_bytes(row.id)) for row in page)
            after = (page[-1].at_us, page[-1].id)
        assert {job_id for job_id, many in ended.items() if many} <= rows
        assert acknowledged <= rows | left, "an acknowledged job is lost"
        assert not rows & left, "a job has ended, and is there"
    return len(ended)
