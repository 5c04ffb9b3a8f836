"""Schedules with one occurrence, or with an end (T8)."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dueline import BadInput, Dueline
from dueline.api.task import Task
from dueline.core.clock import to_datetime
from dueline.schedules import scheduler
from dueline.schedules.schedule import ENDED_KEEP_US
from dueline.schedules.timetable import Timetable
from tests.harness.clocks import HandClock
from tests.harness.world import EVERY_KIND, store_on

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.fixture(params=EVERY_KIND)
def app(request: pytest.FixtureRequest, tmp_path: Path, clock: HandClock) -> Iterator[Dueline]:
    """Make an application on each kind of store."""
    app = Dueline("memory://", clock=clock)
    app.__dict__["store"] = store_on(request.param, tmp_path, clock)
    yield app
    app.close()


@pytest.fixture
def task(app: Dueline) -> Task[[], None]:
    """Register a task."""
    return app.task(name="work")(lambda: None)


def times_of(app: Dueline, clock: HandClock, minutes: int) -> list[str]:
    """Let time pass; return the times of the jobs that were stored."""
    timetable, dues = Timetable(app.queues, "w"), set[int]()
    for _ in range(minutes):
        for _ in range(4):  # without transactions, a job takes several writes
            timetable.step()
        dues |= {job.due_us for job in app.engine.jobs_of("default")}
        clock.advance(60)
    return [f"{to_datetime(us):%H:%M}" for us in sorted(dues)]


@pytest.mark.parametrize(
    ("terms", "times"),
    [
        ({"at": NOW + 3 * MINUTE}, ["00:03"]),
        ({"every": MINUTE, "count": 3}, ["00:01", "00:02", "00:03"]),
        ({"every": 120, "until": NOW + 4 * MINUTE}, ["00:02", "00:04"]),
        ({"every": 60, "count": 9, "until": NOW + 2 * MINUTE}, ["00:01", "00:02"]),
        ({"every": 60, "start": NOW + 3 * MINUTE, "count": 2}, ["00:03", "00:04"]),
        (  # the first job still waits
            {"cron": "*/2 * * * *", "count": 2, "overlap": "skip", "catch_up": "all"},
            ["00:02"],
        ),
        ({"cron": "*/2 * * * *", "until": NOW}, []),
    ],
)
def test_a_schedule_ends(
    app: Dueline,
    task: Task[[], None],
    clock: HandClock,
    terms: dict[str, Any],
    times: list[str],
) -> None:
    declared = app.schedules.set("s", task, **terms)
    assert app.schedules.set("s", task, **terms) == declared
    assert times_of(app, clock, 8) == times
    after = app.schedules.get("s")
    assert (after.next, after.is_paused) == (None, False)
    assert app.schedules.next("s") == []
    assert scheduler.overdue(app.engine, 0) == []
    app.schedules.pause("s")
    app.schedules.resume("s")
    app.schedules.remove("s")
    assert app.schedules.list() == []


def test_a_count_goes_on_if_only_the_call_changes(
    app: Dueline, task: Task[[], None], clock: HandClock
) -> None:
    app.schedules.set("s", task, every=60, count=3)
    clock.advance(70)
    last = app.schedules.set("s", task.using(priority=3), every=60, count=3).last
    assert last == NOW + 3 * MINUTE
    assert app.schedules.set("s", task, every=30, count=4).last == NOW + timedelta(seconds=190)
    app.schedules.remove("s")
    assert app.schedules.set("s", task, every=30, count=4).last == NOW + timedelta(seconds=190)


def test_a_missed_single_time_runs_late(
    app: Dueline, task: Task[[], None], clock: HandClock
) -> None:
    app.schedule("s", task, at=NOW + HOUR)
    assert app.schedules.get("s").last == NOW + HOUR
    clock.advance(7200)
    assert times_of(app, clock, 1) == ["01:00"]


def test_a_declared_schedule_has_jitter_and_an_end(app: Dueline, task: Task[[], None]) -> None:
    app.cron("0 3 * * *", name="c", tz="Asia/Tokyo", count=2, jitter=HOUR)(task)
    app.schedule("s", task, every=60, until=NOW + HOUR, jitter=5)
    assert app.schedules.get("c").last == NOW + timedelta(days=1, hours=18)
    assert app.schedules.get("s").last == NOW + HOUR
    windows = [scheduler.find(app.engine, name).template.window_us for name in "cs"]
    assert windows == [3_600_000_000, 5_000_000]


@pytest.mark.parametrize(
    "terms",
    [
        {"at": NOW},
        {"at": NOW + HOUR, "every": 60},
        {"at": NOW + HOUR, "count": 2},
        {"at": datetime(2027, 1, 1)},  # noqa: DTZ001  (that is what is wrong)
        {"every": 60, "count": 0},
        {"every": 60, "count": True},
        {"every": 60, "count": 10_001},
        {"every": 60, "until": 5},
        pytest.param({"cron": "0 0 29 2 *", "count": 3000}, marks=pytest.mark.long),
        {"cron": "0 0 * * *", "start": NOW + HOUR},
        {"at": NOW + HOUR, "start": NOW + HOUR},
        {"every": 60, "start": NOW + 2 * HOUR, "until": NOW + HOUR},
    ],
)
def test_an_end_that_cannot_be_is_refused(clock: HandClock, terms: dict[str, Any]) -> None:
    app = Dueline("memory://", clock=clock)
    task = app.task(name="work")(lambda: None)
    with pytest.raises(BadInput):
        app.schedules.set("s", task, **terms)
    assert app.schedules.list() == []


def test_a_schedule_that_ended_says_so_and_is_dropped_after_a_week(
    app: Dueline, task: Task[[], None], clock: HandClock
) -> None:
    app.schedule("declared", task, every=60, count=2)
    app.schedules.set("dynamic", task, every=60, count=2)
    app.schedules.set("later", task, at=NOW + timedelta(days=30))
    app.schedules.set("endless", task, every=3600)
    Timetable(app.queues, "w").step()
    assert not any(schedule.has_ended for schedule in app.schedules.list())
    times_of(app, clock, 4)
    ended = [schedule.name for schedule in app.schedules.list() if schedule.has_ended]
    assert ended == ["declared", "dynamic"]
    assert scheduler.unfinished(app.engine) == ["endless", "later"]
    clock.advance(ENDED_KEEP_US // 1_000_000)
    scheduler.advance_all(app.queues)
    assert app.schedules.names() == ["declared", "endless", "later"]


def test_a_schedule_that_the_code_declares_later_is_kept(
    app: Dueline, task: Task[[], None], clock: HandClock
) -> None:
    app.schedules.set("work", task, every=60, count=1)
    app.schedule("work", task, every=60, count=1)
    times_of(app, clock, 2)
    clock.advance(2 * ENDED_KEEP_US // 1_000_000)
    scheduler.advance_all(app.queues)
    assert app.schedules.names() == ["work"]


def test_a_name_of_a_task_is_refused_with_what_to_pass(app: Dueline) -> None:
    with pytest.raises(BadInput, match=r"task_named\(\"shop.send\"\).*app.unchecked"):
        app.schedules.set("nightly", "shop.send", every=60)  # type: ignore[arg-type]
