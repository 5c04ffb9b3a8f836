"""Jobs that are gathered, in time that the test moves (W6)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline.core.attempt import Crashed, Done, Each, Ending, GivenBack
from dueline.core.clock import SECOND_US
from dueline.core.job import Claim, Job, State
from dueline.core.retry import Retry
from dueline.core.store import Drop, Extend, Store
from dueline.jobs import cancel_requests
from dueline.jobs.queue import Queues
from dueline.tasks.batch_handler import BatchHandler, Call
from dueline.tasks.batch_options import BatchOptions
from dueline.worker.assignment import Assignment
from tests.harness.calls import LEASE_US, call, claim_all, number_of, numbers, put, row_in
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.worker_bench import Bench, words
from tests.harness.world import EVERY_KIND, store_on

TASK = "tests.chunked"
WITHIN_US = 2 * SECOND_US


def take(calls: list[Call[int]]) -> None:
    del calls


def bench_of(queues: Queues, clock: HandClock, *, size: int = 3, **terms) -> Bench:  # type: ignore[no-untyped-def]  # noqa: ANN003
    batch = BatchOptions(size=size, within=WITHIN_US / SECOND_US, by=terms.pop("by", ""))
    handler = BatchHandler(take, batch=batch, name=TASK, retry=Retry(), timeout_us=None)
    return Bench(queues, clock, batch_handlers=handler, **terms)


def chunks(bench: Bench) -> list[list[int]]:
    """List the numbers of what was submitted together."""
    return [
        numbers([member.job for member in assignment.chunk or [assignment]])
        for assignment in bench.runner.submitted
    ]


def put_chunked(queues: Queues, *arguments: int, **terms) -> list[Job]:  # type: ignore[no-untyped-def]  # noqa: ANN003
    return put(queues, *(call(n, task=TASK, **terms) for n in arguments))


def members(bench: Bench, place: int = 0) -> Assignment:
    return bench.runner.submitted[place]


@pytest.fixture(params=EVERY_KIND)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: HandClock) -> Iterator[Store]:
    """Open an empty store, also one without transactions."""
    store = store_on(request.param, tmp_path, clock)
    yield store
    store.close()


# --- gather ----------------------------------------------------------------------------------


def test_a_full_chunk_runs_at_once_and_the_rest_after_its_time(
    queues: Queues, clock: HandClock
) -> None:
    put_chunked(queues, *range(8))
    bench = bench_of(queues, clock)
    at_us: list[int] = []

    def note_and_run() -> None:
        at_us.extend([clock.wall_us()] * (len(bench.runner.submitted) - len(at_us)))
        bench.run_all()

    bench.wakeup.meanwhile = note_and_run
    bench.run()
    assert chunks(bench) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert at_us == [NOW_US, NOW_US, NOW_US + WITHIN_US]
    assert words(queues) == ["done"] * 8
    assert claim_all(queues) == []


def test_nothing_is_gathered_before_it_is_due(queues: Queues, clock: HandClock) -> None:
    # T1: what comes due meanwhile joins, what is due later does not
    put_chunked(queues, 1)
    put_chunked(queues, 2, due_us=NOW_US + SECOND_US)
    put_chunked(queues, 3, due_us=NOW_US + 3 * SECOND_US)
    bench = bench_of(queues, clock, burst=False)
    began: list[tuple[int, list[int]]] = []

    def note_and_run() -> None:
        began.extend((clock.wall_us(), chunk) for chunk in chunks(bench)[len(began) :])
        bench.run_all()
        if len(bench.runner.began) == 2:
            bench.worker.stop()

    bench.wakeup.meanwhile = note_and_run
    bench.run()
    assert began == [(NOW_US + WITHIN_US, [1, 2]), (NOW_US + 3 * SECOND_US + WITHIN_US, [3])]


def test_what_waits_for_others_takes_no_slot(queues: Queues, clock: HandClock) -> None:
    put_chunked(queues, 100, 101)
    put(queues, *(call(n) for n in range(6)))
    bench = bench_of(queues, clock, threads=1)
    bench.run()
    assert chunks(bench)[-1] == [100, 101]
    assert bench.runner.began == [0, 1, 2, 3, 4, 5, 100]
    assert bench.runner.beside[100] == []


def test_a_chunk_is_filled_by_a_worker_with_fewer_slots(queues: Queues, clock: HandClock) -> None:
    put_chunked(queues, *range(100))
    bench = bench_of(queues, clock, size=40, threads=2)
    bench.run()
    assert [len(chunk) for chunk in chunks(bench)] == [40, 40, 20]


def test_a_chunk_that_runs_takes_one_slot(queues: Queues, clock: HandClock) -> None:
    put_chunked(queues, 100, 101, 102)
    bench = bench_of(queues, clock, threads=2)

    def end_once_both_run() -> None:
        bench.runner.begin()
        if len(bench.wakeup.waits_s) == 1:
            put(queues, call(1))
        if len(bench.runner.active) > 1 or len(bench.wakeup.waits_s) > 100:
            bench.runner.end()

    bench.wakeup.meanwhile = end_once_both_run
    bench.run()
    assert bench.runner.beside == {100: [1], 1: [100]}


@pytest.mark.slow
def test_no_more_ordinary_jobs_are_claimed_than_there_are_slots(
    queues: Queues, clock: HandClock
) -> None:
    put_chunked(queues, *range(4))
    put(queues, *(call(100 + n) for n in range(50)))
    bench = bench_of(queues, clock, size=50, threads=2)
    most = 0

    def run_one() -> None:
        nonlocal most
        held = [job for job in bench.worker._held.jobs() if job.task != TASK]
        most = max(most, len(held))
        bench.runner.begin()
        for job in bench.runner.active[:1]:
            bench.runner.end(only=number_of(job))

    bench.wakeup.meanwhile = run_one
    bench.run()
    assert most <= 2 + 3 * 2  # its slots, and three times what came last, all of it of chunks
    assert words(queues) == ["done"] * 54


def test_a_queue_with_fewer_slots_fills_chunks_and_runs_no_more_of_them(
    queues: Queues, clock: HandClock
) -> None:
    put_chunked(queues, *range(9), queue="mail")
    bench = bench_of(queues, clock, threads=4, serving={"mail": 1})
    most = 0

    def run_one() -> None:
        nonlocal most
        bench.runner.begin()
        most = max(most, len(bench.runner.active))
        bench.runner.end()

    bench.wakeup.meanwhile = run_one
    bench.run()
    assert chunks(bench) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert most == 1


def test_one_chunk_has_jobs_of_any_tenant_and_priority_and_of_one_queue(
    queues: Queues, clock: HandClock
) -> None:
    put_chunked(queues, 1, priority=0, tenant="ann")
    put_chunked(queues, 2, priority=9, tenant="bob")
    put_chunked(queues, 3, queue="mail")
    bench = bench_of(queues, clock, serving={"default": None, "mail": None})
    bench.run()
    assert sorted(chunks(bench)) == [[2, 1], [3]]
    leader = next(assignment for assignment in bench.runner.submitted if assignment.chunk)
    assert leader.job.lane.priority == 9


def test_jobs_with_other_keys_are_in_other_chunks(queues: Queues, clock: HandClock) -> None:
    put_chunked(queues, 1, 2, 1, 2, 1)
    bench = bench_of(queues, clock, by="{value}")
    bench.run()
    assert sorted(chunks(bench)) == [[1, 1, 1], [2, 2]]


# --- endings ---------------------------------------------------------------------------------


def test_each_job_of_a_chunk_ends_in_its_own_way(queues: Queues, clock: HandClock) -> None:
    jobs = put_chunked(queues, 1, 2, 3)
    bench = bench_of(queues, clock, burst=False)

    def run_once() -> None:
        bench.runner.begin()
        if bench.runner.active:
            claims = [member.job.claim() for member in members(bench).chunk]
            endings: list[Ending] = [Done(b"1"), GivenBack(SECOND_US), Done(b"3")]
            bench.runner.end(Each(list(zip(claims, endings, strict=True))))
            bench.worker.stop()

    bench.wakeup.meanwhile = run_once
    bench.run()
    assert [queues.find(job.id).status for job in jobs] == ["done", "scheduled", "done"]


def test_a_chunk_whose_process_died_makes_suspects_that_run_alone(
    queues: Queues, clock: HandClock
) -> None:
    # rule A1
    jobs = put_chunked(queues, 1, 2, 3)
    bench = bench_of(queues, clock, isolates=True, threads=4)

    def die_first() -> None:
        bench.runner.begin()
        bench.runner.end(DONE if len(bench.runner.began) > 1 else Crashed("it died"))

    bench.wakeup.meanwhile = die_first
    bench.run()
    assert chunks(bench) == [[1, 2, 3], [1], [2], [3]]
    assert [assignment.alone for assignment in bench.runner.submitted] == [False, True, True, True]
    assert words(queues) == ["crashed"] * 3 + ["done"] * 3
    assert [queues.find(job.id).status for job in jobs] == ["done"] * 3


DONE = Done(b"1")


def test_jobs_of_a_worker_that_died_beside_their_chunk_are_no_suspects(
    queues: Queues, clock: HandClock
) -> None:
    # Those that waited for others had not started.
    put_chunked(queues, 1, 2)
    started = claim_all(queues, worker="dead:1:0")[0]
    queues.engine.store.settle([Extend(started, started.at_us, started=True)])
    clock.advance(us=LEASE_US)
    bench = bench_of(queues, clock, isolates=True)
    bench.run()
    assert {
        number_of(assignment.job): assignment.alone for assignment in bench.runner.submitted
    } == {1: True, 2: False}


def test_all_members_of_a_chunk_that_runs_are_known_to_have_started(
    queues: Queues, clock: HandClock
) -> None:
    jobs = put_chunked(queues, 1, 2, 3)
    bench = bench_of(queues, clock, burst=False)
    states: list[int] = []

    def look() -> None:
        bench.runner.begin()
        if len(bench.wakeup.waits_s) == 4:
            states.extend(row_in(queues.engine.store, job.id).state for job in jobs)
            bench.runner.end()
            bench.worker.stop()

    bench.wakeup.meanwhile = look
    bench.run()
    assert states == [State.STARTED] * 3


# --- claims ----------------------------------------------------------------------------------


@pytest.mark.long
def test_claims_of_what_waits_long_are_extended(queues: Queues, clock: HandClock) -> None:
    jobs = put_chunked(queues, 1)
    handler = BatchHandler(
        take, batch=BatchOptions(within=300), name=TASK, retry=Retry(), timeout_us=None
    )
    bench = Bench(queues, clock, batch_handlers=handler)
    fences: set[int] = set()

    def beat() -> None:
        bench.beat()
        fences.add(row_in(queues.engine.store, jobs[0].id).fence)
        bench.run_all()

    bench.wakeup.meanwhile = beat
    bench.run()
    assert clock.wall_us() - NOW_US >= 300 * SECOND_US > 2 * LEASE_US
    assert fences == {1}
    assert words(queues) == ["done"]


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_member_whose_claim_was_lost_costs_no_other(
    queues: Queues, clock: HandClock, *, is_begun: bool
) -> None:
    jobs = put_chunked(queues, 1, 2, 3 if is_begun else 2)
    bench = bench_of(queues, clock, size=3 if is_begun else 4, burst=False)

    def lose_first() -> None:
        if len(bench.wakeup.waits_s) == 1:
            row = row_in(queues.engine.store, jobs[0].id)
            assert queues.engine.store.settle([Drop(row)]) == [True]
            bench.beat()
            assert (row.claim() in bench.runner.forgotten) is True
        bench.run_all()
        if bench.runner.began and not bench.worker._held:
            bench.worker.stop()

    bench.wakeup.meanwhile = lose_first
    bench.run()
    assert words(queues) == ["done", "done"]
    if not is_begun:
        assert chunks(bench) == [[2, 2]]


def test_a_member_that_is_cancelled_while_it_waits_never_runs(
    queues: Queues, clock: HandClock
) -> None:
    # C19
    jobs = put_chunked(queues, 1, 2)
    bench = bench_of(queues, clock)

    def cancel_first() -> None:
        if len(bench.wakeup.waits_s) == 1:
            row = row_in(queues.engine.store, jobs[0].id)
            now_us = clock.wall_us()
            cancel_requests.ask(
                queues.engine.store, row, now_us=now_us, version=queues.engine.ids.token()
            )
            clock.advance(1)
            bench.worker._cancellations.read()
        bench.run_all()

    bench.wakeup.meanwhile = cancel_first
    bench.run()
    assert chunks(bench) == [[2]]
    assert sorted(words(queues)) == ["cancelled", "done"]


@pytest.mark.slow
def test_members_of_a_batch_that_runs_are_cancelled_and_lost_in_its_runner(
    queues: Queues, clock: HandClock
) -> None:
    put_chunked(queues, 1, 2)
    bench = bench_of(queues, clock, size=2)
    claims: list[Claim] = []

    def cancel_and_lose() -> None:
        bench.runner.begin()
        gatherer = bench.worker._gatherer
        if bench.runner.active and gatherer is not None and not claims:
            claims.extend(job.claim() for job in gatherer.running())
            gatherer.cancel(claims[:1])
            gatherer.forget(claims[1:])
        bench.runner.end()

    bench.wakeup.meanwhile = cancel_and_lose
    bench.run()
    assert len(claims) == 2
    assert bench.runner.cancelled[:1] == claims[:1]
    assert bench.runner.forgotten[:1] == claims[1:]


def test_a_worker_that_stops_gives_back_what_it_gathered(queues: Queues, clock: HandClock) -> None:
    jobs = put_chunked(queues, 1, 2)
    bench = bench_of(queues, clock, burst=False)
    bench.wakeup.meanwhile = bench.worker.stop
    assert bench.run() == []
    rows = [row_in(queues.engine.store, job.id) for job in jobs]
    assert [row.is_claimed() for row in rows] == [False, False]
    assert {row.at_us for row in rows} == {NOW_US}


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_chunk_that_was_not_begun_is_given_back_whole(
    queues: Queues, clock: HandClock, *, is_begun: bool
) -> None:
    put_chunked(queues, 1, 2, 3)
    bench = bench_of(queues, clock, burst=False)

    def stop() -> None:
        if is_begun:
            bench.run_all()
        bench.worker.stop()

    bench.wakeup.meanwhile = stop
    bench.run()
    assert words(queues) == (["done"] if is_begun else ["given_back"]) * 3


# --- queues that deliver at most once --------------------------------------------------------


def test_at_most_once_what_is_marked_as_started_waits_for_nothing(
    queues: Queues, clock: HandClock
) -> None:
    # rule P7: a job that was marked and then waited would be lost though nobody called its handler.
    queues.engine.catalog.configure("default", deliver="at_most_once")
    put_chunked(queues, *range(5))
    bench = bench_of(queues, clock, threads=2)
    bench.run()
    assert chunks(bench)[0] == [0, 1]
    assert max(map(len, chunks(bench))) == 2
    assert clock.wall_us() < NOW_US + WITHIN_US
    assert set(bench.runner.states.values()) == {State.STARTED}
    assert words(queues) == ["done"] * 5
