"""Schedules of an application, by its workers."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dueline import Dueline
from dueline.api.maintenance_tasks import tasks_of
from dueline.api.task import Task
from dueline.core.clock import DAY_US
from dueline.core.errors import BadInput, NotFound
from dueline.monitor.monitor import Monitor
from dueline.schedules.scheduler import find
from tests.harness.clocks import HandClock

MINUTE = timedelta(minutes=1)


@pytest.fixture
def app(tmp_path: Path, clock: HandClock) -> Iterator[Dueline]:
    """Make an application on a file of its own."""
    app = Dueline(f"sqlite:///{tmp_path}/jobs.db?synchronous=NORMAL", clock=clock)
    yield app
    app.close()


@pytest.fixture
def ran(app: Dueline) -> list[str]:
    """List what a task was called with."""
    return []


@pytest.fixture
def note(app: Dueline, ran: list[str]) -> Task[[str], None]:
    """Register a task that notes what it is called with."""

    @app.task(name="note")
    def note(text: str = "-") -> None:
        ran.append(text)

    return note


@pytest.mark.long
def test_a_declared_schedule_runs_in_the_workers(
    app: Dueline, note: Task[[str], None], ran: list[str], clock: HandClock
) -> None:
    # T8
    app.schedule("minutely", note, ["a"], every=MINUTE)
    app.schedule("named", note.using(priority=5), {"text": "b"}, cron="*/2 * * * *")
    assert app.schedules.names() == ["minutely", "named"]
    monitor = Monitor(
        app.queues.engine,
        "one",
        clock=clock,
        chance=lambda: 0.5,
        load_tasks=lambda: tasks_of(app.queues),
    )
    for _ in range(60):  # ten minutes
        clock.advance(10)
        while monitor.step() == 0:
            pass
        app.run_worker(burst=True)
    assert ran.count("a") == 10
    assert ran.count("b") == 5


def test_a_time_that_comes_while_the_job_before_waits_makes_none(
    app: Dueline, note: Task[[str], None], ran: list[str], clock: HandClock
) -> None:
    # T10
    app.schedule("s", note, ["a"], every=MINUTE, overlap="skip")
    app.cron("* * * * *", overlap="skip", name="c")(note)
    monitor = Monitor(
        app.queues.engine,
        "one",
        clock=clock,
        chance=lambda: 0.5,
        load_tasks=lambda: tasks_of(app.queues),
    )
    for number in range(60):  # ten minutes, of which a worker is there for the last four
        clock.advance(10)
        while monitor.step() == 0:
            pass
        if number >= 36:
            app.run_worker(burst=True)
    assert sorted(ran) == ["-"] * 5 + ["a"] * 5
    assert [find(app.queues.engine, name).skipped for name in ("s", "c")] == [5, 5]


def test_a_cron_expression_stands_above_a_task(app: Dueline) -> None:
    @app.cron("30 3 * * mon-fri", tz="Europe/Vilnius", name="nightly")
    @app.task(name="tasks.Report")
    def report() -> None:
        pass

    @app.cron("0 * * * *")
    @app.task(name="tasks.Hourly")
    def hourly() -> None:
        pass

    assert app.schedules.names() == ["nightly", "tasks.Hourly"]
    assert app.schedules.next("nightly", 2) == [
        datetime(2026, 1, 1, 1, 30, tzinfo=UTC),
        datetime(2026, 1, 2, 1, 30, tzinfo=UTC),
    ]
    assert report.name == "tasks.Report"


def test_what_cannot_be_a_schedule_is_refused_where_it_is_declared(
    app: Dueline, note: Task[[str], None]
) -> None:
    with pytest.raises(BadInput, match="note"):
        app.schedule("s", note, ["a", "b", "c"], every=MINUTE)
    with pytest.raises(BadInput, match="either a cron expression, an interval or one time"):
        app.schedule("s", note)
    with pytest.raises(BadInput, match="not a cron expression"):
        app.schedule("s", note, cron="every monday")
    for wrong in (
        note.using(after=5),
        note.using(due=datetime(2027, 1, 1, tzinfo=UTC)),
        note.using(unique="k"),
        note.using(expires=datetime(2027, 1, 1, tzinfo=UTC)),
    ):
        with pytest.raises(BadInput, match="A schedule of note cannot have the option"):
            app.schedule("s", wrong, every=MINUTE)
    with pytest.raises(BadInput, match=r"@app.task below @app"):
        app.cron("0 * * * *")(lambda: None)  # type: ignore[type-var]
    app.schedule("s", note, every=MINUTE)
    with pytest.raises(BadInput, match="Two schedules"):
        app.schedule("s", note, every=2 * MINUTE)


def test_a_schedule_is_changed_paused_and_removed(
    app: Dueline, note: Task[[str], None], clock: HandClock
) -> None:
    start = datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)
    app.queues  # noqa: B018  (from here on it is stored at once)
    app.schedule("s", note, every=MINUTE, start=start)
    assert app.schedules.next("s") == [start]
    app.schedules.pause("s")
    assert app.schedules.next("s") == []
    assert list(app.queues.engine.jobs_of("default")) == []
    app.schedules.resume("s")
    assert len(list(app.queues.engine.jobs_of("default"))) == 1
    job = app.schedules.trigger("s")
    assert job.status == "ready"
    app.schedules.remove("s")
    assert app.schedules.names() == []
    assert [row.id.hex() for row in app.queues.engine.jobs_of("default")] == [job.id]
    with pytest.raises(NotFound, match="no schedule s"):
        app.schedules.next("s")
    clock.advance(us=DAY_US)
    app.schedule("s", note, every=MINUTE)
    assert app.schedules.names() == ["s"]


def test_another_process_that_declares_the_same_changes_nothing(
    app: Dueline, note: Task[[str], None], tmp_path: Path, clock: HandClock
) -> None:
    app.schedule("s", note, ["a"], every=MINUTE)
    before = [row.id for row in app.queues.engine.jobs_of("default")]
    other = Dueline(app.url, clock=clock)
    other.task(name="note")(str.upper)
    other.schedule("s", other.task_named("note"), ["a"], every=MINUTE)
    clock.advance(5)
    assert [row.id for row in other.queues.engine.jobs_of("default")] == before
    other.close()


def test_schedules_are_set_read_and_removed_while_the_application_runs(
    app: Dueline, note: Task[[str], None], clock: HandClock
) -> None:
    app.schedule("declared", note, every=MINUTE)
    made = app.schedules.set(
        "customer-7", note, ["a"], cron="30 3 * * *", tz="Europe/Vilnius", jitter=60
    )
    assert (made.name, made.task, made.queue) == ("customer-7", "note", "default")
    assert (made.cron, made.tz, made.every) == ("30 3 * * *", "Europe/Vilnius", None)
    assert made.next == datetime(2026, 1, 1, 1, 30, tzinfo=UTC)
    assert find(app.engine, "customer-7").template.window_us == 60_000_000
    assert [schedule.name for schedule in app.schedules.list()] == ["customer-7", "declared"]
    assert app.schedules.get("declared").every == MINUTE
    app.schedules.pause("customer-7")
    changed = app.schedules.set("customer-7", note, {"text": "b"}, every=MINUTE)
    assert (changed.is_paused, changed.next, changed.every) == (True, None, MINUTE)
    app.schedules.resume("customer-7")
    assert app.schedules.get("customer-7").next is not None
    app.schedules.remove("customer-7")
    assert app.schedules.names() == ["declared"]
    with pytest.raises(NotFound):
        app.schedules.get("customer-7")


def test_wrong_dynamic_schedules_are_refused(app: Dueline, note: Task[[str], None]) -> None:
    app.schedule("declared", note, every=MINUTE)
    for name, terms in (
        ("declared", {"every": 60}),
        ("a", {}),
        ("a", {"cron": "never"}),
        ("a", {"every": 60, "tz": "Nowhere"}),
        ("a", {"every": 60, "jitter": -1}),
        ("a", {"every": 60, "args": [1, 2]}),
    ):
        with pytest.raises(BadInput):
            app.schedules.set(name, note, **terms)
    assert app.schedules.names() == ["declared"]
