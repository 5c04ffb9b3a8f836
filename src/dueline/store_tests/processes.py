"""Laws of several processes, and of processes that are killed."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain, islice

import pytest

from dueline.core.store import Store
from dueline.store_tests.actor import PRIORITIES, READY, RESULTS
from dueline.store_tests.calls import (
    LEASE_US,
    all_of,
    claim,
    id_of,
    lane_of,
    new_job,
    new_jobs,
    put_in,
    read_count,
    records_in,
    rows_in,
    stream_of,
)
from dueline.store_tests.factory import StoreFactory

ACTORS = 3
JOBS = {"machine": 2000, "network": 100}
"""Number of jobs in each lane, by scope: enough that claims overlap."""
WAIT_S = 300


@contextmanager
def actor(url: str, act: str, **arguments: int) -> Iterator[subprocess.Popen[str]]:
    """Start a process that has opened the store and waits for the start signal."""
    command = [sys.executable, "-m", "dueline.store_tests.actor", url, act, json.dumps(arguments)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:  # noqa: S603  our own module
        try:
            yield process
        finally:
            process.kill()


def await_ready(process: subprocess.Popen[str]) -> None:
    """Wait until a process has opened the store."""
    assert process.stdout is not None
    if process.stdout.readline().strip() != READY:
        raise AssertionError(f"an actor did not start: {process.communicate(timeout=WAIT_S)[1]}")


def start(process: subprocess.Popen[str]) -> None:
    """Send the start signal to a process."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def output_of(process: subprocess.Popen[str]) -> list[object]:
    """Wait for a process to end; return its output."""
    out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()]


def at_once(url: str, act: str, *, actors: int = ACTORS, **arguments: int) -> list[list[object]]:
    """Run an act in several processes that start together; return the output of each."""
    with ExitStack() as stack:
        crew = [
            stack.enter_context(actor(url, act, number=number, **arguments))
            for number in range(actors)
        ]
        for process in crew:
            await_ready(process)
        for process in crew:
            start(process)
        return [output_of(process) for process in crew]


def write_until_killed(url: str, *, lines: int) -> Sequence[tuple[str, int]]:
    """Kill a writing process after `lines` lines; return the writes that it acknowledged."""
    with actor(url, "write_for_ever") as process:
        await_ready(process)
        start(process)
        assert process.stdout is not None
        heard = list(islice(process.stdout, lines))
        process.kill()
        heard += process.stdout.readlines()
        process.wait(timeout=WAIT_S)
        assert len(heard) >= lines, process.stderr and process.stderr.read()
    # The last line may be incomplete: then it was not acknowledged.
    return [(what, number) for what, number in map(json.loads, filter(_is_whole, heard))]


def _is_whole(line: str) -> bool:
    return line.endswith("\n")


def assert_kept(store: Store, acknowledged: Sequence[tuple[str, int]]) -> None:
    """Check that acknowledged writes exist, and groups all or nothing."""
    kinds = ("added", "dropped", "put", "appended", "together")
    by_kind = {kind: [number for what, number in acknowledged if what == kind] for kind in kinds}
    records = {int(record.key) for record in records_in(store, RESULTS)}
    appended = {int.from_bytes(row.id) for row in stream_of(store)}
    added = [new_job(3 * number) for number in by_kind["added"]]
    assert all_of(store, added) == added
    dropped = [new_job(3 * number + 1) for number in by_kind["dropped"]]
    assert all_of(store, dropped) == [None] * len(dropped)
    assert set(by_kind["put"]) <= records
    assert set(by_kind["appended"]) <= appended
    grouped = {number - 1_000_000 for number in records if number >= 1_000_000}
    assert set(by_kind["together"]) <= grouped
    assert grouped == {number - 1_000_000 for number in appended if number >= 1_000_000}
    rows = {int.from_bytes(row.id) for row in rows_in(store, lane_of())}
    assert grouped == {number // 3 for number in rows if number % 3 == 2}


class ProcessLaws:
    """For stores that several processes may open."""

    def test_processes_claim_each_job_once(self, factory: StoreFactory) -> None:
        url = factory.fresh()
        store = factory.open(url)
        jobs = JOBS[store.scope]
        for priority in range(PRIORITIES):
            lane = lane_of(priority=priority)
            put_in(store, *new_jobs(jobs, first=1 + jobs * priority, lane=lane))
        claims = chain.from_iterable(at_once(url, "claim_until_empty", limit=2))
        assert Counter(claims) == Counter(range(1, 1 + jobs * PRIORITIES))
        for priority in range(PRIORITIES):
            assert {row.fence for row in rows_in(store, lane_of(priority=priority))} == {1}
        store.close()

    def test_of_many_processes_that_finish_a_claim_one_succeeds(
        self, factory: StoreFactory
    ) -> None:
        url = factory.fresh()
        store = factory.open(url)
        put_in(store, *new_jobs(60))
        assert len(claim(store, lane_of(), token=5).jobs) == 60
        held = chain.from_iterable(at_once(url, "drop_each", jobs=60, token=5))
        assert Counter(held) == Counter(range(1, 61))
        assert rows_in(store, lane_of()) == []
        store.close()

    def test_processes_that_add_the_same_jobs_store_each_once(self, factory: StoreFactory) -> None:
        url = factory.fresh()
        store = factory.open(url)
        answers = at_once(url, "add_each", jobs=100)
        assert answers == [[[True] * 10] * 10] * ACTORS
        assert rows_in(store, lane_of()) == new_jobs(100)
        store.close()

    def test_processes_count_up_a_record_without_losing_one(self, factory: StoreFactory) -> None:
        url = factory.fresh()
        store = factory.open(url)
        at_once(url, "count_record", times=25)
        assert read_count(store)[0] == 25 * ACTORS
        store.close()

    def test_a_process_sees_what_another_has_just_written(self, factory: StoreFactory) -> None:
        url = factory.fresh()
        store = factory.open(url)
        put_in(store, new_job(1))
        with actor(url, "read_claim", job=1) as process:
            await_ready(process)
            claim(store, lane_of())
            start(process)
            assert output_of(process) == [[1, LEASE_US]]
        store.close()

    # Five lines a round: the kills hit each kind of write, above all the group (19, 204).
    @pytest.mark.parametrize("lines", [1, 12, 18, 19, 100, 204])
    def test_what_was_acknowledged_survives_the_writers_sudden_death(
        self, factory: StoreFactory, lines: int
    ) -> None:
        url = factory.fresh()
        acknowledged = write_until_killed(url, lines=lines)
        store = factory.open(url)
        assert_kept(store, acknowledged)
        # The store is intact: it accepts writes, and returns each of its jobs once.
        put_in(store, new_job(0), *new_jobs(3, first=10_000_000))
        jobs = claim(store, lane_of(), most=5000, limit=5000).jobs
        assert len(jobs) == len({job.id for job in jobs}) == len(rows_in(store, lane_of()))
        assert {id_of(0), id_of(10_000_000)} <= {job.id for job in jobs}
        store.close()
