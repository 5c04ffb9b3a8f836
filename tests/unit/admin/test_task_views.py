"""Tasks and the last runs of schedules, as people read them (V8)."""

from pathlib import Path

import pytest

from dueline.admin.schedule_runs import last_run
from dueline.admin.task_views import task_summaries
from dueline.api.application import Dueline
from dueline.coordination import notes
from dueline.core.clock import SECOND_US
from dueline.core.codec import encode
from dueline.core.retry import Retry
from dueline.foresight import rates, trends
from dueline.foresight.rates import Counted, after_counting
from dueline.schedules import scheduler


@pytest.fixture
def app(tmp_path: Path) -> Dueline:
    app = Dueline("memory://")

    @app.task(name="fail", retry=Retry(attempts=1))
    def fail(number: int) -> None:
        raise ValueError(f"no mailbox {number}\nof this name")

    @app.task(name="work")
    def work() -> int:
        return 1

    return app


def test_a_task_says_how_often_it_fails_and_why(app: Dueline) -> None:
    for number in range(3):
        last = app.send("fail", [number])
    app.send("work")
    app.run_worker(burst=True, concurrency=1)
    fail, work = app.admin.tasks()
    assert (fail.name, work.name) == ("fail", "work")
    assert fail.error is not None
    assert fail.error.text == "ValueError: no mailbox 2"
    assert fail.error.job == last.id
    assert fail.p95_us is not None
    assert (work.error, work.failing, work.share) == (None, None, None)


def test_rates_and_slots_are_those_that_the_leader_recorded(app: Dueline) -> None:
    engine, now_us = app.engine, app.engine.time.latest_us()
    engine.catalog.settings("default")
    app.send("work")
    counts = None
    for ago_s in range(300, -1, -15):
        counted = Counted({}, {"work": 150}, {"work": 30})
        counts = after_counting(counts, counted, now_us - ago_s * SECOND_US)
    slot = now_us // trends.TASK_SLOT_US
    slots = {"work": {slot: (40, 10), slot - 3: (60, 0), slot - 99: (7, 7)}}
    puts = [
        notes.put(rates.KIND, "default", encode(counts), engine.ids.token()),
        notes.put(trends.KIND, trends.TASKS, encode(slots), engine.ids.token()),
    ]
    engine.store.commit(notes.PARTITION, puts)
    (work,) = task_summaries(engine, (), {}, ())
    assert work.per_s == pytest.approx(10, rel=0.1)
    assert work.failing == pytest.approx(0.2, rel=0.01)
    assert (work.ended, work.failed, work.share) == (100, 10, 0.1)
    assert work.slots[-1] == (40, 10)
    assert work.slots[-4] == (60, 0)
    assert work.queues == ["default"]


def test_the_last_run_of_a_schedule_and_its_outcome(app: Dueline) -> None:
    app.schedule("often", app.unchecked("fail"), (7,), every=1)
    scheduler.store_scheduled_jobs(app.queues, None)
    (stored,) = scheduler.all_schedules(app.engine)
    assert last_run(app.queues, stored.schedule, stored.schedule.timing.start_us) is None
    run = last_run(app.queues, stored.schedule, stored.schedule.through_us - SECOND_US)
    assert run is not None
    assert run.state == "scheduled"
    at_us = run.at_us
    app.job(run.job).retry()
    app.run_worker(burst=True, monitor=False)
    run = last_run(app.queues, stored.schedule, at_us)
    assert run is not None
    assert run.state == "dead"
    app.admin.operations("ann").delete(bytes.fromhex(run.job))  # type: ignore[arg-type]
    run = last_run(app.queues, stored.schedule, at_us)
    assert run is not None
    assert run.state == "dead"  # by the history
