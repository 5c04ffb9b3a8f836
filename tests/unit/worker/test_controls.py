"""Cancelling jobs that run, and what they say of their progress."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline.core.attempt import (
    Cancelled,
    Crashed,
    Done,
    Ending,
    Expired,
    Failed,
    GivenBack,
    Snoozed,
)
from dueline.core.call_options import CallOptions
from dueline.core.errors import BadInput, LeaseLost, StoreUnavailable
from dueline.core.job import JobId
from dueline.core.retry import CRASHES_MAX, Retry
from dueline.core.store import Extend, Store
from dueline.jobs import cancel_requests, progress_records
from dueline.jobs.queue import Queues
from dueline.tasks.handler import Context, Handler
from dueline.tasks.progress import NoControl, Progress, ProgressReport
from dueline.tasks.raised import Cancel
from dueline.worker.assignment import Assignment
from dueline.worker.execution import Execution
from tests.harness.calls import LEASE_US, call, calls, claim_all, put, row_in, row_of
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.swaps import swap
from tests.harness.worker_bench import Bench, words
from tests.harness.world import EVERY_KIND, store_on

FAILED = Failed("OSError", "no", "", retry=True)


def begun(bench: Bench, clock: HandClock) -> None:
    """Begin handlers, and look as the beat does, a second later."""
    bench.runner.begin()
    clock.advance(1)
    bench.worker._attend()


WAIT_S = 60
ASKED = "Its end was asked for."
HANDLER = Handler(len, name="tests.task", retry=Retry(), timeout_us=None)


@pytest.fixture(params=EVERY_KIND)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: HandClock) -> Iterator[Store]:
    """Open an empty store of each kind."""
    store = store_on(request.param, tmp_path, clock)
    yield store
    store.close()


def outcome_of(queues: Queues, job_id: JobId) -> tuple[str, str]:
    """Read how a job ended."""
    outcome = queues.find(job_id).outcome
    assert outcome is not None
    return outcome.state, outcome.error


# --- cancel: the worker ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "state"),
    [
        (Cancelled(ASKED), "cancelled"),
        (Done(b"1"), "done"),
        (FAILED, "cancelled"),
        (Snoozed(5), "cancelled"),
        (GivenBack(), "cancelled"),
        (FAILED._replace(retry=False), "cancelled"),
        (Crashed("died"), "cancelled"),
        (Expired(), "cancelled"),
    ],
)
def test_a_running_job_whose_end_is_wished_for_runs_no_second_time(
    queues: Queues, clock: HandClock, ending: Ending, state: str
) -> None:
    # C19: it ends as its handler makes it end, but is not tried again
    (job,) = put(queues, call(1))
    bench = Bench(queues, clock)

    def cancel() -> None:
        begun(bench, clock)
        if len(bench.wakeup.waits_s) == 1:
            assert not queues.cancel(job.id)
        elif bench.runner.cancelled:
            assert bench.runner.cancelled == [job._replace(fence=1).claim()]
            bench.runner.end(ending)

    bench.wakeup.meanwhile = cancel
    assert bench.run() == [1]
    assert queues.find(job.id).status == state
    assert words(queues) == [state]
    assert cancel_requests.of_worker(queues.engine.store, "bench:1:0") == {}


def test_a_claimed_job_that_has_not_begun_never_does(queues: Queues, clock: HandClock) -> None:
    # C19
    jobs = put(queues, calls(0, 4))
    bench = Bench(queues, clock, threads=2)
    bench.runner.run_us = 20_000.0  # so that more are held than run

    def cancel() -> None:
        begun(bench, clock)
        if len(bench.wakeup.waits_s) == 1:
            assert not queues.cancel(jobs[3].id)
        elif bench.runner.cancelled:
            bench.runner.end()

    bench.wakeup.meanwhile = cancel
    assert bench.run() == [0, 1, 2]
    assert outcome_of(queues, jobs[3].id)[0] == "cancelled"


def test_a_wish_outlives_the_worker_that_it_was_for(queues: Queues, clock: HandClock) -> None:
    # C19: the next claimer does not run the job
    first, second = put(queues, calls(0, 2))
    taken = claim_all(queues, worker="dead:1:0")
    queues.engine.store.settle([Extend(job, job.at_us, started=True) for job in taken])
    assert not queues.cancel(first.id)
    clock.advance(us=LEASE_US)
    assert Bench(queues, clock).run() == [1]
    assert outcome_of(queues, first.id) == ("cancelled", ASKED)
    assert sorted(words(queues)) == ["cancelled", "crashed", "crashed", "done"]
    assert queues.find(second.id).status == "done"


@pytest.mark.parametrize("ending", [FAILED, FAILED._replace(retry=False), Crashed("died")])
def test_a_request_just_before_the_end_decides_what_it_is_called(
    queues: Queues, clock: HandClock, ending: Ending
) -> None:
    # C19: the worker reads its requests again before it decides
    (job,) = put(queues, call(1))
    bench = Bench(queues, clock, retry=Retry(base=0, cap=0))

    def cancel() -> None:
        bench.runner.begin()
        if bench.runner.active:
            assert not queues.cancel(job.id)
            bench.runner.end(ending)

    bench.wakeup.meanwhile = cancel
    assert bench.run() == [1]
    outcome = queues.find(job.id).outcome
    assert outcome is not None
    assert outcome.state == "cancelled"
    assert outcome.error.startswith("Cancellation was requested. ")
    assert words(queues) == ["cancelled"]


@pytest.mark.parametrize("end", ["poison", "lost", "expired"])
def test_a_job_that_was_asked_to_stop_is_cancelled_whatever_ends_it_before_it_runs(
    queues: Queues, clock: HandClock, end: str
) -> None:
    # C19: under a claim that its worker never ended
    if end == "lost":
        queues.engine.catalog.configure("default", deliver="at_most_once")
    expires_us = NOW_US + LEASE_US if end == "expired" else None
    (job,) = put(queues, call(1)._replace(opts=CallOptions(expires_us=expires_us).to_bytes()))
    crashes = CRASHES_MAX if end == "poison" else 1
    for number in range(1, crashes + 1):
        (taken,) = claim_all(queues, worker="dead:1:0")
        queues.engine.store.settle([Extend(taken, taken.at_us, started=True)])
        if number == crashes:
            assert not queues.cancel(job.id)
        clock.advance(us=LEASE_US)
    clock.advance(1)
    assert Bench(queues, clock).run() == []
    assert outcome_of(queues, job.id)[0] == "cancelled"
    assert {"dead", "lost", "expired"}.isdisjoint(words(queues))


def test_a_worker_that_holds_nothing_reads_no_wishes(queues: Queues, clock: HandClock) -> None:
    # O3; and once a second while it does
    counting = FailingStore(queues.engine.store, {})
    swap(queues, store=counting)
    bench = Bench(queues, clock)
    clock.advance(5)
    before = counting.calls
    bench.worker._attend()
    assert counting.calls == before
    bench.worker._held.add([row_of(1)])
    for _ in range(10):
        bench.worker._attend()
        clock.advance(0.25)
    assert counting.calls == before + 3


def test_a_wish_is_asked_for_again_while_the_store_is_away(
    queues: Queues, clock: HandClock
) -> None:
    # C19, invariant 1: nothing that was claimed is run unasked, or forgotten
    put(queues, call(1))
    (taken,) = claim_all(queues, worker="dead:1:0")
    queues.cancel(taken.id)
    clock.advance(us=LEASE_US)
    bench = Bench(queues, clock)

    class Away(FailingStore):
        def read(self, partition, *, after, limit):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            if partition.startswith("cancels/") and len(failed) < 2:
                failed.append(partition)
                self._plan = {self.calls + 1: Fault.BEFORE}
            return super().read(partition, after=after, limit=limit)

    failed: list[str] = []
    swap(queues, store=Away(queues.engine.store, {}))
    assert bench.run() == []
    assert len(failed) == 2
    assert outcome_of(queues, taken.id)[0] == "cancelled"
    assert sorted(words(queues)) == ["cancelled", "given_back"]


def test_the_history_of_a_dead_attempt_is_told_when_the_store_is_back(
    queues: Queues, clock: HandClock
) -> None:
    put(queues, call(1))
    claim_all(queues, worker="dead:1:0")
    clock.advance(us=LEASE_US)

    class Away(FailingStore):
        def append(self, rows):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            if not failed:
                failed.append(True)
                self._plan = {self.calls + 1: Fault.BEFORE}
            return super().append(rows)

    failed: list[bool] = []
    swap(queues, store=Away(queues.engine.store, {}))
    assert Bench(queues, clock).run() == [1]
    assert failed == [True]
    assert sorted(words(queues)) == ["done", "given_back"]


# --- cancel: the handler ---------------------------------------------------------------------


def running(function: object) -> tuple[Execution, Assignment]:
    """Make an execution of one handler, and a job for it."""
    handler = Handler(function, name="tests.task", retry=Retry(), timeout_us=None)  # type: ignore[arg-type]
    job = row_of(7)._replace(body=b"[]", fence=5)
    return Execution({"tests.task": handler}), Assignment(job, keep=True)


def test_a_handler_that_looks_is_stopped() -> None:
    def handler(ctx: Context) -> None:
        assert not ctx.is_cancelled
        ctx.check_cancelled()
        execution.controls.cancel([assignment.job.claim()])
        assert ctx.is_cancelled
        ctx.check_cancelled()

    execution, assignment = running(handler)
    assert execution.run(assignment, NOW_US) == Cancelled(ASKED)


def test_a_handler_that_does_not_look_ends_as_it_ends() -> None:
    def handler(_: Context) -> int:
        execution.controls.cancel([assignment.job.claim()])
        return 3

    execution, assignment = running(handler)
    assert execution.run(assignment, NOW_US) == Done(b"3")


def test_a_job_that_was_cancelled_first_is_not_called() -> None:
    execution, assignment = running(lambda: 3)
    execution.controls.cancel([assignment.job.claim()])
    assert execution.run(assignment, NOW_US) == Cancelled(ASKED)


def test_a_coroutine_is_cancelled_at_its_next_await() -> None:
    # C19
    waits = threading.Event()
    cleaned = []

    async def handler() -> None:
        waits.set()
        try:
            await asyncio.sleep(3600)
        finally:
            cleaned.append(True)

    def cancel() -> None:
        assert waits.wait(WAIT_S)
        execution.controls.cancel([assignment.job.claim()])

    execution, assignment = running(handler)
    canceller = threading.Thread(target=cancel)
    canceller.start()
    assert execution.run(assignment, NOW_US) == Cancelled(ASKED)
    canceller.join()
    assert cleaned == [True]


def test_a_coroutine_that_cancels_itself_has_failed() -> None:
    async def handler() -> None:
        raise asyncio.CancelledError

    execution, assignment = running(handler)
    ending = execution.run(assignment, NOW_US)
    assert isinstance(ending, Failed)
    assert ending.error_type == "CancelledError"


def test_a_lost_claim_comes_before_a_wish() -> None:
    execution, assignment = running(len)
    execution.controls.lose([assignment.job.claim()])
    execution.controls.cancel([assignment.job.claim()])
    context = Context(assignment.job, execution.controls, HANDLER)
    with pytest.raises(LeaseLost):
        context.check_cancelled()
    other = Execution({})
    other.controls.cancel([assignment.job.claim()])
    context = Context(assignment.job, other.controls, HANDLER)
    with pytest.raises(Cancel, match=ASKED):
        context.check_cancelled()


@pytest.mark.parametrize("count", [0, 3])
def test_all_jobs_of_an_overdue_handler_and_no_others_know_it(count: int) -> None:
    controls = Execution({}).controls
    batch = tuple(Assignment(row_of(number), keep=True) for number in range(1, count + 1))
    mine = batch or (Assignment(row_of(1), keep=True),)
    controls.expire(mine[0]._replace(chunk=batch))
    overdue = [controls.is_overdue(row_of(number).claim()) for number in range(1, 6)]
    assert overdue == [number <= len(mine) for number in range(1, 6)]


# --- progress --------------------------------------------------------------------------------


def test_the_last_report_is_written_and_there_for_the_next_attempt(
    queues: Queues, clock: HandClock
) -> None:
    # C18
    (job,) = put(queues, call(1))
    bench = Bench(queues, clock, retry=Retry(base=0, cap=0), takes_context=True)
    lasts: list[Progress | None] = []

    def report() -> None:
        bench.runner.begin()
        if not bench.runner.active:
            return
        (active,) = bench.runner.active
        lasts.append(bench.runner.submitted[-1].last)
        bench.runner.told = {active.claim(): ProgressReport(len(lasts), 10, "half")}
        if len(lasts) == 1:
            bench.worker._attend()
            assert progress_records.read(queues.engine.store, job.id) == Progress(
                1, 10, "half", clock.wall_us()
            )
        bench.runner.end(FAILED if len(lasts) < 3 else Done(b"1"))

    bench.wakeup.meanwhile = report
    assert bench.run() == [1, 1, 1]
    assert [last and last.done for last in lasts] == [None, 1, 2]
    last = progress_records.read(queues.engine.store, job.id)
    assert last is not None
    assert last.done == 3
    clock.advance(us=progress_records.KEEP_US)
    assert progress_records.read(queues.engine.store, job.id) is None


def test_what_a_lost_claim_reported_is_not_written(queues: Queues, clock: HandClock) -> None:
    (job,) = put(queues, call(1))
    bench = Bench(queues, clock)

    def lose() -> None:
        bench.runner.begin()
        if len(bench.wakeup.waits_s) == 1:
            (active,) = bench.runner.active
            bench.runner.told = {active.claim(): ProgressReport(1, 10, "stale")}
            failing = FailingStore(queues.engine.store, {1: Fault.BEFORE})
            real = queues.engine.store
            swap(queues, store=failing)
            with pytest.raises(StoreUnavailable):
                bench.worker._attend()
            swap(queues, store=real)
            clock.advance(us=LEASE_US)
            claim_all(queues, worker="other")
            bench.beat()
            bench.worker._attend()
        bench.runner.end()

    bench.wakeup.meanwhile = lose
    bench.run()
    assert progress_records.read(queues.engine.store, job.id) is None


def test_reports_of_many_jobs_are_one_call(queues: Queues, clock: HandClock) -> None:
    jobs = put(queues, calls(0, 5))
    counting = FailingStore(queues.engine.store, {})
    swap(queues, store=counting)
    bench = Bench(queues, clock)
    bench.runner.told = {job.claim(): ProgressReport(1, 2, "") for job in jobs}
    before = counting.calls
    bench.worker._attend()
    assert counting.calls == before + 1
    assert all(progress_records.read(queues.engine.store, job.id) is not None for job in jobs)
    assert row_in(queues.engine.store, jobs[0].id).fence == 0


@pytest.mark.parametrize(
    ("done", "total", "note"),
    [("1", 2, ""), (1, None, ""), (float("nan"), 1, ""), (1, float("inf"), ""), (-1, 2, ""),
     (True, 2, ""), (1, 2, 3), (2**64, 2, "")],
)  # fmt: skip
def test_a_report_of_something_else_is_refused(done: object, total: object, note: object) -> None:
    context = Context(row_of(1), NoControl(), HANDLER)
    with pytest.raises(BadInput, match="progress"):
        context.progress(done, total, note)  # type: ignore[arg-type]


def test_a_note_is_cut_and_readable() -> None:
    execution, assignment = running(len)
    Context(assignment.job, execution.controls, HANDLER).progress(1, 2, "\ud800" + "x" * 600)
    ((_, report),) = execution.controls.take_reports().items()
    assert report.note == "\\ud800" + "x" * 499
    assert execution.controls.take_reports() == {}


def test_a_plain_call_has_a_context_that_does_nothing() -> None:
    context = Context(row_of(1), NoControl(), HANDLER)
    context.progress(1, 2, "note")
    context.check_cancelled()
    assert not context.is_cancelled
    assert context.last_progress is None
