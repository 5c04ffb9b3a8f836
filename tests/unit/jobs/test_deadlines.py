"""Of jobs that have deadlines the earliest goes first."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from dueline import BadInput, Dueline
from dueline.core.clock import SECOND_US, to_datetime
from dueline.core.deadlines import EPOCH_S, LARGEST, deadline_of, late_us, priority_of
from dueline.core.lane import PRIORITY_MAX, PRIORITY_MIN
from dueline.tasks.hooks import SettleEvent, SettleName
from tests.harness.clocks import NOW_US, HandClock

STORES = [
    pytest.param("memory://", marks=pytest.mark.memory),
    pytest.param("memory://?transactional=off", marks=pytest.mark.memory),
    pytest.param("sqlite://{folder}/jobs.db?synchronous=NORMAL", marks=pytest.mark.sqlite),
]


@pytest.fixture(params=STORES)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Dueline]:
    made = Dueline(request.param.format(folder=f"/{tmp_path}"))

    @made.task(name="does")
    def does(what: str) -> None: ...

    yield made
    made.close()


def in_order(app: Dueline) -> list[str]:
    """Tell the arguments of the jobs that are ready, in the order in which they are claimed."""
    return [job.body.decode().strip('[]"') for job in app.queues.peek("default", 100)]


# --- a deadline is a priority -------------------------------------------------------------------


def test_an_earlier_deadline_is_a_larger_priority_and_can_be_read_off_it() -> None:
    # T6
    chance = random.Random(1)
    deadlines = [NOW_US + chance.randrange(60 * 365 * 86_400 * SECOND_US) for _ in range(500)]
    for deadline, other in pairwise(deadlines):
        if deadline // SECOND_US < other // SECOND_US:
            assert priority_of(deadline) > priority_of(other)
        assert 0 <= (deadline_of(priority_of(deadline)) or 0) - deadline < SECOND_US
        assert PRIORITY_MIN <= priority_of(deadline) <= LARGEST


def test_a_deadline_beyond_all_bounds_is_the_first_or_the_last() -> None:
    assert priority_of(0) == LARGEST
    assert priority_of(NOW_US * 10) == PRIORITY_MIN
    assert deadline_of(LARGEST) == (EPOCH_S - LARGEST) * SECOND_US
    assert [deadline_of(priority) for priority in (0, LARGEST + 1, PRIORITY_MAX)] == [None] * 3


def test_lateness_counts_from_the_deadline() -> None:
    priority = priority_of(NOW_US)
    assert late_us(priority, NOW_US) == late_us(0, NOW_US) == 0
    assert late_us(priority, NOW_US + 5) == 5


# --- which job goes first -----------------------------------------------------------------------


def test_the_earliest_deadline_goes_first_whenever_the_jobs_came(app: Dueline) -> None:
    # T6
    does = app.task_named("does")
    minutes = [7, 3, 9, 1, 8, 2]
    for number in minutes:
        does.using(deadline=timedelta(minutes=number)).enqueue(f"{number}")
    does.using(deadline=datetime.now(UTC) + timedelta(minutes=5)).enqueue("5")
    does.using(deadline=60, after=3600).enqueue("later")
    does.enqueue("plain")
    assert in_order(app) == ["plain", "1", "2", "3", "5", "7", "8", "9"]
    does.using(deadline=240).enqueue("4")
    app.run_worker(burst=True, concurrency=1)
    assert in_order(app) == []


def test_a_worker_starts_them_in_that_order(app: Dueline) -> None:
    # T6
    ran: list[int] = []

    @app.task(name="notes")
    def note(number: int) -> None:
        ran.append(number)

    minutes = [7, 3, 9, 1, 8, 2]
    for number in minutes:
        app.task_named("notes").using(deadline=60 * number).enqueue(number)
    app.run_worker(burst=True, concurrency=1)
    assert ran == sorted(minutes)


def test_within_a_second_the_one_that_became_due_first_goes_first(app: Dueline) -> None:
    deadline = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=5)
    for name, ahead_us in (("a", 900), ("b", 100), ("c", 500)):
        at = deadline + timedelta(microseconds=ahead_us)
        app.task_named("does").using(deadline=at).enqueue(name)
    assert in_order(app) == ["a", "b", "c"]


def test_a_priority_and_a_deadline_take_each_others_place(app: Dueline) -> None:
    does = app.task_named("does")
    with pytest.raises(BadInput):
        does.using(deadline=5, priority=1)
    with pytest.raises(BadInput):
        does.using(deadline=datetime(2027, 1, 1))  # noqa: DTZ001  (that is what is wrong)
    for using in (does.using(deadline=5).using(priority=3), does.using(priority=3)):
        assert app.queues.find(bytes.fromhex(using.enqueue("a").id)).row.lane.priority == 3  # type: ignore[union-attr,arg-type]
    late = does.using(priority=3).using(deadline=to_datetime(NOW_US)).enqueue("b")
    row = app.queues.find(bytes.fromhex(late.id)).row  # type: ignore[arg-type]
    assert row is not None
    assert deadline_of(row.lane.priority) == NOW_US
    with pytest.raises(BadInput, match="deadline"):
        app.schedule("s", does.using(deadline=60), every=60)


# --- what is missed -----------------------------------------------------------------------------


def test_hooks_are_told_how_late_a_job_ended() -> None:
    # T6
    clock = HandClock()
    app = Dueline("memory://", clock=clock)
    events: list[SettleEvent] = []
    names: tuple[SettleName, ...] = ("done", "retry", "dead", "expired")
    for name in names:
        app.on(name)(events.append)

    @app.task(name="slow")
    def slow(seconds: int) -> None:
        clock.advance(seconds)

    for seconds, deadline, expires in ((10, 10, None), (20, 25, None), (0, 29, 29)):
        slow.using(deadline=deadline, expires=expires).enqueue(seconds)
    app.run_worker(burst=True, concurrency=1)
    assert [event.late_us // SECOND_US for event in events] == [0, 5, 1]
    app.close()
