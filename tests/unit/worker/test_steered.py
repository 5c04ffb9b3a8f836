"""Jobs of paused tasks wait without a slot, and come back."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dueline.core.attempt import Failed
from dueline.core.clock import SECOND_US
from dueline.core.errors import Unknown
from dueline.core.ids import Ids
from dueline.core.queue_settings import QueueSettings
from dueline.core.retry import Retry
from dueline.core.wakeup import FALLBACK_US, LocalWakeups
from dueline.jobs.explain import explain
from dueline.jobs.history_recorder import open_engine
from dueline.jobs.paused_tasks import ASIDE_US, PAGE, is_deferred
from dueline.jobs.pauses import pause, resume
from dueline.jobs.queue import Queues
from tests.harness.calls import call, number_of, put
from tests.harness.clocks import HandClock
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.interleaving import Turns, every_order
from tests.harness.lives import Stage, Stopped, put_one
from tests.harness.queues import queues_on
from tests.harness.swaps import swap
from tests.harness.worker_bench import Bench, words
from tests.harness.world import EVERY_KIND, store_on

TASK = "tests.task"
QUEUE = "default"


def process(queues: Queues, clock: HandClock) -> Queues:
    """Make another process on the same store."""
    return queues_on(queues.engine.store, clock)


def fine(_: int) -> int:
    """Do what a handler does."""
    return 1


def a_pause(stage: Stage) -> None:
    """Pause the task, let a worker come by, end the pause, let another come by."""
    for act in (
        lambda: pause(stage.queues().engine, QUEUE, tasks=[TASK]),
        stage.work,
        lambda: resume(stage.queues().engine, QUEUE, tasks=[TASK]),
    ):
        with suppress(Stopped):
            act()


pytestmark = pytest.mark.no_cover  # long, and what it runs is measured by others

OTHER = "tests.other"


@pytest.fixture(params=EVERY_KIND)
def queues(request: pytest.FixtureRequest, tmp_path: Path, clock: HandClock) -> Iterator[Queues]:
    """Open each kind of store, with an engine on it."""
    store = store_on(request.param, tmp_path, clock)
    yield queues_on(store, clock)
    store.close()


def numbers_aside(queues: Queues) -> list[int]:
    """List the jobs that are set aside."""
    return sorted(number_of(row) for row in queues.engine.jobs_of(QUEUE) if is_deferred(row))


# --- one worker ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_is_paused_takes_no_slot_no_attempt_and_no_turn(
    queues: Queues, clock: HandClock
) -> None:
    # F10
    put(queues, *(call(n) for n in range(20)), *(call(100 + n, task=OTHER) for n in range(3)))
    pause(queues.engine, QUEUE, tasks=[TASK])
    bench = Bench(queues, clock, threads=1)
    assert bench.run() == [100, 101, 102]
    assert words(queues) == ["done"] * 3
    rows = {number_of(row): row for row in queues.engine.jobs_of(QUEUE)}
    assert numbers_aside(queues) == sorted(rows) == list(range(20))
    assert {(row.errors, row.crashes, row.alone) for row in rows.values()} == {(0, 0, False)}
    explanation = explain(queues, rows[0].id)
    assert (explanation.reason, explanation.facts["task"]) == ("paused", TASK)
    assert f"resume {QUEUE} --task {TASK}" in explanation.sentence
    resume(queues.engine, QUEUE, tasks=[TASK])
    assert Bench(queues, clock, threads=1).run() == list(range(20))


@pytest.mark.slow
def test_what_stands_behind_many_is_not_hidden_for_long(queues: Queues, clock: HandClock) -> None:
    # F10: a call of the store for each of them would take minutes, where there are 100,000
    put(queues, *(call(n) for n in range(3 * PAGE)), call(9999, task=OTHER))
    pause(queues.engine, QUEUE, tasks=[TASK])
    counting = FailingStore(queues.engine.store, {})
    seeing = queues_on(counting, clock)
    assert Bench(seeing, clock, threads=1).run() == [9999]
    assert counting.calls < 100


def test_other_tasks_wait_for_nothing_while_more_of_it_comes(
    queues: Queues, clock: HandClock
) -> None:
    pause(queues.engine, QUEUE, tasks=[TASK])
    bench = Bench(queues, clock, threads=1, burst=False)
    count = 0

    def more() -> None:
        nonlocal count
        put(queues, call(count), call(1000 + count, task=OTHER))
        count += 1
        bench.run_all()
        if count == 20:
            bench.worker.stop(hurry=True)

    bench.wakeup.meanwhile = more
    began = bench.run()
    assert began == list(range(1000, 1000 + len(began)))
    assert len(began) > 10
    assert sum(bench.wakeup.waits_s) < 60  # no endless turns


def test_a_job_that_failed_before_keeps_its_count_and_its_error(
    queues: Queues, clock: HandClock
) -> None:
    put(queues, call(1))
    bench = Bench(queues, clock, retry=Retry(base=1.0), burst=False)

    def fail_once() -> None:
        bench.runner.begin()
        bench.runner.end(Failed("ValueError", "bad", "", retry=True))
        if words(queues):
            bench.worker.stop()

    bench.wakeup.meanwhile = fail_once
    bench.run()
    pause(queues.engine, QUEUE, tasks=[TASK])
    clock.advance(60)
    assert Bench(queues, clock).run() == []
    (row,) = queues.engine.jobs_of(QUEUE)
    assert (row.errors, "ValueError" in row.error, is_deferred(row)) == (1, True, True)
    resume(queues.engine, QUEUE, tasks=[TASK])
    assert Bench(queues, clock).run() == [1]
    assert words(queues) == ["retried", "done"]


def test_it_comes_back_by_itself_and_is_set_aside_again(queues: Queues, clock: HandClock) -> None:
    # rule P9
    (job,) = put(queues, call(1))
    pause(queues.engine, QUEUE, tasks=[TASK])
    for _ in range(3):
        assert Bench(queues, clock).run() == []
        (row,) = queues.engine.jobs_of(QUEUE)
        assert row.at_us == clock.wall_us() + ASIDE_US
        clock.advance(us=ASIDE_US)
    resume(queues.engine, QUEUE, tasks=[TASK])
    (row,) = queues.engine.jobs_of(QUEUE)
    assert row.at_us <= clock.wall_us()
    assert Bench(queues, clock).run() == [1]
    assert job.id == row.id


def test_a_job_that_was_put_off_meanwhile_stays_where_it_was_put(
    queues: Queues, clock: HandClock
) -> None:
    """Set a job aside, have somebody put it off, and end the pause."""
    # rule P9
    (job,) = put(queues, call(1))
    pause(queues.engine, QUEUE, tasks=[TASK])
    assert Bench(queues, clock).run() == []
    at_us = clock.wall_us() + 900 * SECOND_US
    queues.reschedule(job.id, at_us)
    resume(queues.engine, QUEUE, tasks=[TASK])
    assert [row.at_us for row in queues.engine.jobs_of(QUEUE)] == [at_us]


def test_a_worker_that_knows_late_of_the_end_brings_back_what_it_set_aside(
    queues: Queues, clock: HandClock
) -> None:
    """End the pause after a worker has read of it, and before it sets a job aside."""
    put(queues, call(1))
    pause(queues.engine, QUEUE, tasks=[TASK])
    bench = Bench(queues, clock, burst=False)
    operator = process(queues, clock)
    claim, ended = bench.worker._claimer.claim, list[int]()

    def claim_late(*terms: object) -> object:
        if not ended:
            ended.append(clock.wall_us())
            resume(operator.engine, QUEUE, tasks=[TASK])
        return claim(*terms)  # type: ignore[arg-type]

    bench.worker._claimer.claim = claim_late  # type: ignore[assignment,method-assign]

    def look() -> None:
        bench.run_all()
        if bench.runner.began or clock.wall_us() > ended[0] + ASIDE_US // 2:
            bench.worker.stop()

    bench.wakeup.meanwhile = look
    assert bench.run() == [1]
    assert clock.wall_us() <= ended[0] + 10 * SECOND_US


def test_a_job_that_is_claimed_before_its_time_is_not_started_at_it(
    queues: Queues, clock: HandClock
) -> None:
    put(queues, call(1, due_us=clock.wall_us() + SECOND_US))
    pause(queues.engine, QUEUE, tasks=[TASK])
    bench = Bench(queues, clock, burst=False)
    until_us = clock.wall_us() + 3 * SECOND_US

    def look() -> None:
        bench.run_all()
        if clock.wall_us() > until_us:
            bench.worker.stop()

    bench.wakeup.meanwhile = look
    assert bench.run() == []
    assert numbers_aside(queues) == [1]


# --- wherever anybody is stopped ----------------------------------------------------------------


def test_wherever_a_pause_is_stopped_the_job_runs_once() -> None:
    """Stop one after the other of the steps of a pause; nobody repeats what was stopped."""
    # rule P9
    for number in range(1, 400):
        stage = Stage(fine)
        put_one(stage)
        stage.stop_at = frozenset({number})
        a_pause(stage)
        is_over, stage.stop_at = stage.steps < number, frozenset()
        if TASK in stage.queues().engine.catalog.settings(QUEUE).paused_tasks:
            resume(stage.queues().engine, QUEUE, tasks=[TASK])
        stage.clock.advance(us=ASIDE_US)
        stage.work_to_the_end()
        assert stage.calls == 1, f"stopped at step {number}"
        assert [outcome.state for outcome in stage.ends.values()] == ["done"]
        if is_over:
            return
    raise AssertionError("there are too many steps")


@pytest.mark.long
def test_in_whatever_order_a_worker_and_the_end_of_a_pause_come_the_job_runs_once() -> None:
    # rule P9
    def lead(turns: Turns) -> None:
        stage = Stage(fine)
        put_one(stage)
        pause(stage.queues().engine, QUEUE, tasks=[TASK])
        stage.turns = turns
        operator = stage.queues()
        turns.run([stage.work, lambda: resume(operator.engine, QUEUE, tasks=[TASK])])
        stage.turns = None
        stage.clock.advance(us=ASIDE_US)
        stage.work_to_the_end()
        assert stage.calls == 1
        assert [outcome.state for outcome in stage.ends.values()] == ["done"]

    assert every_order(lead, switches_max=2) > 50


@pytest.mark.slow
@pytest.mark.parametrize("fault", Fault)
def test_whichever_call_fails_what_is_paused_waits_and_then_runs(
    queues: Queues, clock: HandClock, fault: Fault
) -> None:
    for number in range(1, 60):
        (job,) = put(queues, call(number))
        failing = FailingStore(queues.engine.store, {})
        worker = queues_on(failing, clock)
        pause(worker.engine, QUEUE, tasks=[TASK])
        bench = Bench(worker, clock)
        failing._plan = {failing.calls + number: fault}
        with suppress(Unknown):
            assert bench.run() == []
        is_over = failing.calls < max(failing._plan)
        with suppress(Unknown):
            resume(worker.engine, QUEUE, tasks=[TASK])
        resume(queues.engine, QUEUE, tasks=[TASK])
        clock.advance(us=ASIDE_US)
        assert Bench(queues, clock).run() == [number], f"call {number}"
        assert queues.engine.store.find([job.id]) == [None]
        if is_over:
            return
    raise AssertionError("there are too many calls")


@pytest.mark.parametrize("what", [{}, {"tenants": [""]}, {"tasks": [TASK]}])
def test_an_idle_worker_is_told_of_a_pause_before_what_it_knows_is_due(
    queues: Queues, clock: HandClock, what: dict[str, list[str]]
) -> None:
    # F10: it looks by itself every five seconds
    swap(queues, wakeups=LocalWakeups())
    bench = Bench(queues, clock, burst=False, gap_us_max=FALLBACK_US)
    begin_us = clock.wall_us()
    paused: list[int] = []

    def look() -> None:
        bench.run_all()
        now_us = clock.wall_us()
        if now_us > begin_us + 30 * SECOND_US and not paused:
            put(queues, call(1, due_us=now_us + 3 * SECOND_US))
            paused.append(now_us)
        elif paused and len(paused) == 1:
            operator = Queues(
                open_engine(
                    queues.engine.store,
                    clock=clock,
                    ids=Ids(),
                    defaults=QueueSettings(),
                    wakeups=queues.engine.wakeups,
                )
            )
            pause(operator.engine, QUEUE, **what)
            paused.append(now_us)
        elif paused and now_us > paused[0] + 20 * SECOND_US:
            bench.worker.stop()

    bench.wakeup.meanwhile = look
    assert bench.run() == []
    assert len(list(queues.engine.jobs_of(QUEUE))) == 1
