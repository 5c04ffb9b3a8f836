"""Handlers are not called under claims that have lapsed."""

import threading
import time
from pathlib import Path

import pytest

from dueline.core.attempt import Done, Each, Ended, GivenBack
from dueline.core.job import Job, State
from dueline.core.retry import Retry
from dueline.jobs.queue import Queues
from dueline.tasks.batch_handler import BatchHandler, Call
from dueline.tasks.batch_options import BatchOptions
from dueline.tasks.handler import Context, Handler
from dueline.worker.assignment import Assignment
from dueline.worker.context_controls import Controls
from dueline.worker.execution import Execution
from dueline.worker.thread_runner import ThreadRunner
from tests.harness.calls import call, put, row_of
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.crew import Crew
from tests.harness.programs import Program, wait_for
from tests.harness.worker_bench import Bench

LEASE_US = 1_000_000


calls: list[int] = []


def plain(number: int) -> None:
    """Take the short way."""
    calls.append(number)


def told(context: Context, number: int) -> None:
    """Take the longer way."""
    calls.append(number + context.fence * 0)


async def awaited(number: int) -> None:
    """Take the way of coroutines."""
    calls.append(number)


HANDLERS = {
    function.__name__: Handler(function, name=function.__name__, retry=Retry(), timeout_us=None)
    for function in (plain, told, awaited)
}


def claimed(number: int, task: str) -> Job:
    """Make a row that was claimed now."""
    row = row_of(number, task=task)
    return row._replace(at_us=NOW_US + LEASE_US, fence=1, state=State.CLAIMED)


def run(assignments: list[Assignment], clock: HandClock, execution: Execution) -> list[Ended]:
    """Give jobs to a runner."""
    wakeup = threading.Event()
    runner = ThreadRunner(execution, threads=1, clock=clock, now_us=clock.wall_us, wakeup=wakeup)
    crew = Crew(runner, wakeup)
    runner.start()
    runner.submit(assignments)
    try:
        return crew.take(len(assignments))
    finally:
        crew.close()


AFTER_US = NOW_US + LEASE_US + 1


@pytest.fixture(autouse=True)
def nothing_called() -> None:
    calls.clear()


@pytest.mark.parametrize("keep", [1, 0])
@pytest.mark.parametrize("task", list(HANDLERS))
def test_no_handler_is_called_once_the_claim_has_lapsed(
    clock: HandClock, task: str, keep: int
) -> None:
    # rule H2
    job = claimed(1, task)
    clock.advance(us=LEASE_US + 1)
    (ended,) = run([Assignment(job, bool(keep))], clock, Execution(HANDLERS))
    assert (ended.ending, ended.started_us, calls) == (GivenBack(), 0, [])


@pytest.mark.parametrize("task", list(HANDLERS))
def test_an_extended_claim_has_not_lapsed(clock: HandClock, task: str) -> None:
    # rule H2
    job, execution = claimed(1, task), Execution(HANDLERS)
    clock.advance(us=LEASE_US + 1)
    execution.controls.extend({job.claim(): AFTER_US + LEASE_US})
    (ended,) = run([Assignment(job, keep=False)], clock, execution)
    assert isinstance(ended.ending, Done)
    assert calls == [1]


def test_only_the_members_of_a_batch_whose_claims_have_lapsed_are_left_out() -> None:
    # rule H2
    seen: list[list[int]] = []

    def together(batch: list[Call[int]]) -> None:
        seen.append([call.value for call in batch])

    handler = BatchHandler(
        together, name="many", retry=Retry(), timeout_us=None, batch=BatchOptions(3)
    )
    execution = Execution({"many": handler})
    jobs = [claimed(number, "many") for number in range(3)]
    execution.controls.extend({jobs[1].claim(): AFTER_US})
    members = tuple(Assignment(job, keep=False) for job in jobs)
    leader = members[0]._replace(job=jobs[0]._replace(fence=-1), chunk=members)
    ending = execution.run(leader, AFTER_US)
    assert isinstance(ending, Each)
    assert [type(end) for _, end in ending.endings] == [GivenBack, GivenBack, Done]
    assert seen == [[1]]


def test_claims_that_are_extended_later_replace_older_ones_and_no_more_are_kept() -> None:
    controls, jobs = Controls(), [claimed(number, "plain") for number in range(3)]
    controls.extend({jobs[0].claim(): AFTER_US})
    controls.extend_more({jobs[1].claim(): AFTER_US})
    assert [controls.has_expired(Assignment(job, keep=False), AFTER_US) for job in jobs] == [
        False,
        False,
        True,
    ]
    controls.extend({jobs[2].claim(): AFTER_US})
    assert [controls.has_expired(Assignment(job, keep=False), AFTER_US) for job in jobs] == [
        True,
        True,
        False,
    ]


def test_the_heartbeat_tells_the_runner_until_when_claims_last(
    queues: Queues, clock: HandClock
) -> None:
    # rule H2
    put(queues, call(1))
    bench = Bench(queues, clock)
    told: list[dict[object, int]] = []
    bench.runner.extend = told.append  # type: ignore[method-assign,assignment]

    def meanwhile() -> None:
        bench.runner.begin()
        clock.advance(5)
        bench.beat()
        bench.runner.end()
        bench.wakeup.set()

    bench.wakeup.meanwhile = meanwhile
    bench.run()
    lease_us = queues.engine.catalog.settings("default").lease_us
    assert [list(leases.values()) for leases in told] == [[NOW_US + 5_000_000 + lease_us]]


def test_a_job_whose_rate_counts_it_too_long_ago_does_not_start(clock: HandClock) -> None:
    # rule N5
    jobs = [claimed(number, "plain") for number in (1, 2)]
    by_us = [NOW_US + 1000, NOW_US + 3000]
    assignments = [
        Assignment(job, keep=False, start_by_us=us) for job, us in zip(jobs, by_us, strict=True)
    ]
    clock.advance(us=2000)
    ended = run(assignments, clock, Execution(HANDLERS))
    assert [(type(end.ending), end.started_us) for end in ended] == [
        (GivenBack, 0),
        (Done, NOW_US + 2000),
    ]
    assert calls == [2]


PROGRAM = """
import os, time
from dueline import Context; from dueline import Dueline

app = Dueline(URL)
app.queue("q", shards=1, lease=1.5)

@app.task(name="nap", queue="q")
def nap(ctx: Context, number: int, seconds: float) -> None:
    with open("starts", "a") as file:
        file.write(f"{os.getppid() if PROCESSES else os.getpid()} {number} {ctx.fence}\\n")
    time.sleep(seconds)
"""


@pytest.mark.long
@pytest.mark.sqlite
@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_worker_that_stood_still_starts_nothing_that_others_have_run(
    tmp_path: Path, processes: str
) -> None:
    # rule H2: SIGSTOP takes the worker and its child, as a suspended machine does
    program = Program(tmp_path, f"PROCESSES = {processes}\n{PROGRAM}")
    nap, log = program.module.nap, tmp_path / "starts"

    def starts() -> list[list[int]]:
        text = log.read_text(encoding="utf-8") if log.exists() else ""
        return [[int(word) for word in line.split()] for line in text.splitlines()]

    try:
        quick = nap.enqueue_many([(number, 0.001) for number in range(200)])
        still = program.work("-q", "q", "-c", "1", "--processes", processes, "--no-monitor")
        wait_for(lambda: quick[-1].status == "done", "the worker has learned")
        with program.module.app.transaction() as tx:
            nap.using(priority=1, tx=tx).enqueue(1000, 0.2)
            later = nap.using(tx=tx).enqueue_many([(number, 0.001) for number in range(1001, 1031)])
        wait_for(lambda: starts()[-1][1] == 1000, "the slow one has started")
        program.stop(still)
        began = len(starts())
        program.work("-q", "q", "-c", "1", "--no-monitor")
        wait_for(lambda: all(job.status == "done" for job in later), "another worker runs them")
        ran = len(starts())
        assert ran > began
        program.go_on(still)
        time.sleep(0.5)
        assert [start for start in starts()[ran:] if start[0] == still.pid] == []
    finally:
        program.close()
