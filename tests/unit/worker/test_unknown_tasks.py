"""Jobs of unknown tasks wait in a lane of their task (O9)."""

import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dueline.admin.health import examine
from dueline.core.clock import SECOND_US
from dueline.core.lane import limits_of, task_key, task_of, tenant_of
from dueline.core.queue_settings import QueueSettings
from dueline.core.wakeup import FALLBACK_US, LocalWakeups
from dueline.jobs.explain import explain
from dueline.jobs.paused_tasks import PAGE
from dueline.jobs.queue import EnqueueRequest, Queues
from dueline.worker.paused_jobs import ASK_EVERY_US
from tests.harness.calls import call, put
from tests.harness.clocks import HandClock
from tests.harness.failing_store import FailingStore
from tests.harness.interleaving import Turns, every_order
from tests.harness.lives import Stage, Stopped, put_one
from tests.harness.queues import queues_on
from tests.harness.swaps import swap
from tests.harness.worker_bench import Bench
from tests.harness.world import EVERY_KIND, store_on

TASK, OTHER = "tests.task", "tests.other"


LEASE_US = QueueSettings().lease_us


@pytest.fixture(params=EVERY_KIND)
def queues(request: pytest.FixtureRequest, tmp_path: Path, clock: HandClock) -> Iterator[Queues]:
    """Open each kind of store, with an engine on it."""
    store = store_on(request.param, tmp_path, clock)
    yield queues_on(store, clock)
    store.close()


def test_a_worker_without_its_task_claims_it_once(queues: Queues, clock: HandClock) -> None:
    """Have workers that do not know a task come again and again, then one that does."""
    # rule P10
    put(queues, *(call(n, tenant="a", priority=n % 2) for n in range(5)), call(9, task=OTHER))
    began_us = clock.wall_us()
    assert Bench(queues, clock, tasks=[OTHER], threads=2).run() == [9]
    rows = list(queues.engine.jobs_of("default"))
    for _ in range(3):
        assert Bench(queues, clock, tasks=[OTHER]).run() == []
        clock.advance(3600)
    assert list(queues.engine.jobs_of("default")) == rows
    assert {task_of(row.lane) for row in rows} == {TASK}
    assert {(row.errors, row.crashes, row.alone, row.fence <= 1) for row in rows} == {
        (0, 0, False, True)
    }
    assert {row.at_us for row in rows} == {began_us}
    assert Bench(queues, clock, tasks=[TASK], threads=1).run() == [1, 3, 0, 2, 4]


def test_it_is_not_claimed_again(queues: Queues, clock: HandClock) -> None:
    """Have a worker that does not know a task go on for a while."""
    # rule P10
    put(queues, call(1))
    bench = Bench(queues, clock, tasks=[OTHER], burst=False)
    for _ in range(20):
        bench.worker._step()
        clock.advance(1)
    (row,) = queues.engine.jobs_of("default")
    assert (row.fence, bench.runner.began) == (1, [])


def test_wherever_a_worker_is_stopped_the_job_runs_once() -> None:
    """Stop a worker that does not know the task at each of its steps."""
    # rule P10
    for number in range(1, 400):
        stage = Stage(lambda _: 1)
        put_one(stage)
        stage.stop_at = frozenset({number})
        with suppress(Stopped):
            stage.work(OTHER)
        is_over, stage.stop_at = stage.steps < number, frozenset()
        stage.clock.advance(us=LEASE_US + SECOND_US)
        stage.work_to_the_end()
        assert stage.calls == 1, f"stopped at step {number}"
        assert [outcome.state for outcome in stage.ends.values()] == ["done"]
        if is_over:
            return
    raise AssertionError("there are too many steps")


@pytest.mark.long
@pytest.mark.no_cover  # many orders of the same
def test_in_whatever_order_two_workers_come_the_job_runs_once() -> None:
    # rule P10
    def lead(turns: Turns) -> None:
        stage = Stage(lambda _: 1)
        put_one(stage)
        stage.turns = turns
        turns.run([lambda: stage.work(OTHER), stage.work])
        stage.turns = None
        stage.clock.advance(us=LEASE_US + SECOND_US)
        stage.work_to_the_end()
        assert stage.calls == 1
        assert [outcome.state for outcome in stage.ends.values()] == ["done"]

    assert every_order(lead, switches_max=2) > 50


@pytest.mark.slow
def test_what_stands_behind_many_is_not_hidden_for_long(queues: Queues, clock: HandClock) -> None:
    put(queues, *(call(n) for n in range(2 * PAGE)), call(9999, task=OTHER))
    counting = FailingStore(queues.engine.store, {})
    bench = Bench(queues_on(counting, clock), clock, threads=1, tasks=[OTHER])
    assert bench.run() == [9999]
    assert counting.calls < 100


def test_a_job_that_was_brought_forward_does_not_wait_for_its_old_time(
    queues: Queues, clock: HandClock
) -> None:
    (job,) = put(queues, call(1, due_us=clock.wall_us() + 3600 * SECOND_US))
    queues.reschedule(job.id, clock.wall_us())
    assert Bench(queues, clock, tasks=[OTHER]).run() == []
    (row,) = queues.engine.jobs_of("default")
    assert (task_of(row.lane), row.at_us <= clock.wall_us()) == (TASK, True)
    assert Bench(queues, clock, tasks=[TASK]).run() == [1]


def test_tenant_limits_and_retries_are_kept(queues: Queues, clock: HandClock) -> None:
    limited = EnqueueRequest("default", TASK, 0, [b"[1]"], None, 7, "acme", limits=[("x", "y:1")])
    put(queues, limited)
    Bench(queues, clock, tasks=[OTHER]).run()
    (row,) = queues.engine.jobs_of("default")
    assert (tenant_of(row.lane), limits_of(row.lane)) == ("acme", ("x", "y:1"))
    assert (task_of(row.lane), row.lane.priority) == (TASK, 7)
    assert Bench(queues, clock, tasks=[TASK]).run() == [1]


def test_two_applications_each_get_their_own_at_once(queues: Queues, clock: HandClock) -> None:
    swap(queues, wakeups=LocalWakeups())
    terms = {"burst": False, "gap_us_max": FALLBACK_US, "threads": 1}
    mine = Bench(queues, clock, tasks=[TASK], **terms)  # type: ignore[arg-type]
    theirs = Bench(queues, clock, tasks=[OTHER], **terms)  # type: ignore[arg-type]
    began_us = clock.wall_us()
    put(queues, *(call(n, task=(TASK, OTHER)[n % 2]) for n in range(10)))
    for _ in range(40):
        for bench in (mine, theirs):
            bench.worker._step()
            bench.run_all()
    assert (mine.runner.began, theirs.runner.began) == ([0, 2, 4, 6, 8], [1, 3, 5, 7, 9])
    assert clock.wall_us() - began_us < SECOND_US


def test_a_worker_logs_an_unknown_task_once(
    queues: Queues, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    def warnings() -> list[str]:
        return [
            record.getMessage() for record in caplog.records if record.levelno == logging.WARNING
        ]

    (job,) = put(queues, call(1))
    bench = Bench(queues, clock, tasks=[OTHER], burst=False)
    bench.beat()
    for number in (1, 2):
        put(queues, call(number))
        bench.worker._step()
    assert warnings() == [f"no live worker knows task {TASK} in the queue default; its jobs wait"]
    explanation = explain(queues, job.id)
    assert (explanation.reason, explanation.facts["workers"]) == ("task unknown", 1)
    assert f"no live worker knows task {TASK}" in explanation.sentence
    knowing = Bench(queues, clock, tasks=[TASK])
    knowing.beat()
    assert explain(queues, job.id).reason == "waiting"
    caplog.clear()
    other = Bench(queues, clock, tasks=[OTHER], burst=False)
    for number in (3, 4):
        put(queues, call(number))
        other.worker._step()
    assert warnings() == []
    bench.beat()  # under the same name: the one that knew the task is gone
    clock.advance(us=ASK_EVERY_US)
    other.worker._step()
    other.worker._step()
    assert len(warnings()) == 1


SEALED = 64


def test_a_codec_that_the_worker_lacks_is_like_a_task_that_it_lacks(
    queues: Queues, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    # rule P10
    (sealed,) = put(queues, EnqueueRequest("default", TASK, SEALED, [b"[1]"], tenant="a"))
    put(queues, call(2))
    without = Bench(queues, clock, tasks=[TASK], burst=False)
    without.beat()
    for _ in range(5):
        without.worker._step()
        without.run_all()
        clock.advance(60)
    assert without.runner.began == [2]
    row = queues.find(sealed.id).row
    assert row is not None
    assert (task_of(row.lane), tenant_of(row.lane)) == (task_key(TASK, SEALED), "a")
    assert (row.fence, row.errors, row.at_us) == (1, 0, sealed.at_us)
    words = f"no live worker knows task {TASK} and the codec {SEALED} of its arguments"
    assert [
        record.getMessage() for record in caplog.records if record.levelno == logging.WARNING
    ] == [f"{words} in the queue default; its jobs wait"]
    without.beat()
    explanation = explain(queues, sealed.id)
    assert (explanation.reason, words in explanation.sentence) == ("task unknown", True)
    checks = [check.finding for check in examine(queues.engine).checks]
    assert any(finding.startswith(words) for finding in checks)
    both = Bench(queues, clock, tasks=[TASK], codecs=[SEALED])
    both.beat()
    assert explain(queues, sealed.id).reason == "waiting"
    assert both.run() == [1]


def test_workers_that_each_know_a_half_do_not_pass_a_job_on(
    queues: Queues, clock: HandClock
) -> None:
    # rule P10
    put(queues, EnqueueRequest("default", TASK, SEALED, [b"[1]"]))
    for _ in range(3):
        assert Bench(queues, clock, tasks=[TASK]).run() == []
        assert Bench(queues, clock, tasks=[OTHER], codecs=[SEALED]).run() == []
    (row,) = queues.engine.jobs_of("default")
    assert row.fence == 1
    assert Bench(queues, clock, tasks=[TASK], codecs=[SEALED]).run() == [1]
