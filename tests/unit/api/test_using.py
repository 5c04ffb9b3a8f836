"""What `using` asks for, from the application down."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dueline import BadInput, Conflict, Dueline, Duplicate, JobFailed, Task, Unique
from dueline.api.job_handle import parse_id
from dueline.core.call_options import Rule, read_options
from dueline.core.clock import SECOND_US, to_datetime
from dueline.core.job import Job as Row
from tests.harness.clocks import NOW_US, HandClock

NOW = to_datetime(NOW_US)


@pytest.fixture(params=["memory://", "memory://?transactional=off", "sqlite:///jobs.db"])
def app(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    clock: HandClock,
) -> Iterator[Dueline]:
    """Make an application, in time that stands still."""
    monkeypatch.chdir(tmp_path)
    app = Dueline(request.param, clock=clock)
    yield app
    app.close()


@pytest.fixture
def greet(app: Dueline) -> Task[..., str]:
    """Register a task."""

    @app.task(name="greet")
    def greet(to: str, times: int = 1) -> str:
        return f"hello {to}" * times

    return greet


def row_of(app: Dueline, job_id: str) -> Row:
    """Read a job's row."""
    row = app.queues.find(parse_id(job_id)).row
    assert row is not None
    return row


def test_expiry_is_an_instant_or_counted_from_the_call(
    app: Dueline, greet: Task[..., str], clock: HandClock
) -> None:
    # C15
    clock.advance(5)
    cases: list[tuple[datetime | timedelta | float, int]] = [
        (NOW + timedelta(minutes=1), NOW_US + 60 * SECOND_US),
        (timedelta(minutes=1), NOW_US + 65 * SECOND_US),
        (1.5, NOW_US + 6_500_000),
    ]
    for expires, at_us in cases:
        job = greet.using(expires=expires).enqueue("ann")
        assert read_options(row_of(app, job.id).opts).expires_us == at_us
    assert row_of(app, greet.enqueue("ann").id).opts == b""


def test_a_job_that_expires_while_the_call_waits_is_stored(
    app: Dueline, greet: Task[..., str], clock: HandClock
) -> None:
    # C15: it is no bad input that a hook, or the wait for a quota, took longer
    app.on("before_enqueue")(lambda _: clock.advance(2))
    assert greet.using(expires=1).enqueue("ann").status == "expired"
    assert greet.using(after=1, expires=3).enqueue("ann").status == "ready"
    with pytest.raises(BadInput, match="expires before it is due"):
        greet.using(after=3, expires=2).enqueue("ann")


def test_the_result_of_an_expired_job_is_told(
    app: Dueline, greet: Task[..., str], clock: HandClock
) -> None:
    # C15: before and after a worker has come to it
    job = greet.using(expires=1).enqueue("ann")
    clock.advance(1)
    for _ in range(2):
        assert job.status == "expired"
        with pytest.raises(JobFailed, match="expired before it ran"):
            job.result()
        app.run_worker(["default"], burst=True)


@pytest.mark.parametrize(
    "options",
    [
        {"expires": 0},
        {"expires": -1},
        {"expires": "1 h"},
        {"expires": datetime(2030, 1, 1)},  # noqa: DTZ001  (naive: that is what is refused)
        {"expires": NOW - timedelta(days=1)},
        {"expires": 5, "after": 5},
        {"expires": 10, "after": 5, "window": 5},
        {"window": -1},
        {"window": "5m"},
        {"window": timedelta(days=9999)},
        {"unique": ""},
        {"unique": 3},
        {"unique": "hello:{who}"},
        {"unique": Unique("{to}")},
    ],
)
def test_what_makes_no_sense_is_refused(
    app: Dueline, greet: Task[..., str], options: dict[str, Any]
) -> None:
    with pytest.raises(BadInput):
        greet.using(**options).enqueue("")
    assert list(app.queues.engine.jobs_of("default")) == []


def test_a_window_starts_at_the_due_time(app: Dueline, greet: Task[..., str]) -> None:
    # T7
    due = datetime(2026, 1, 1, 9, tzinfo=UTC)
    window = timedelta(minutes=5)
    jobs = greet.using(due=due, window=window).enqueue_many([("ann",)] * 20)
    rows = [row_of(app, job.id) for job in jobs]
    assert {to_datetime(row.due_us) for row in rows} == {due}
    assert len({row.at_us for row in rows}) > 15
    assert all(due <= to_datetime(row.at_us) < due + window for row in rows)


def test_a_key_is_made_of_the_arguments(app: Dueline, greet: Task[..., str]) -> None:
    # C12
    unique = greet.using(unique="hello:{to}:{times}")
    job = unique.enqueue("ann")
    assert read_options(row_of(app, job.id).opts).unique == Rule("hello:ann:1")
    unique.enqueue(times=2, to="ann")
    unique.using(queue="other").enqueue("ann")
    with pytest.raises(Duplicate) as caught:
        unique.enqueue(to="ann", times=1)
    assert caught.value.job_id == job.id
    assert app.job(caught.value.job_id) == job
    same = greet.using(unique=Unique("hello:{to}:{times}", mode="existing")).enqueue("ann")
    assert same == job


def test_many_calls_have_a_key_each(app: Dueline, greet: Task[..., str]) -> None:
    existing = greet.using(unique=Unique("{to}", mode="existing"))
    jobs = existing.enqueue_many([("ann",), ("ben",), ("ann",)])
    assert jobs[0] == jobs[2] != jobs[1]
    assert len(list(app.queues.engine.jobs_of("default"))) == 2


def test_a_task_may_be_unique_itself(app: Dueline, clock: HandClock) -> None:
    @app.task(name="report", unique=Unique("report:{day}", within=60))
    def report(day: str) -> None: ...

    report.enqueue("monday")
    app.run_worker(["default"], burst=True)
    with pytest.raises(Duplicate):
        report.enqueue("monday")
    clock.advance(60)
    report.enqueue("monday")
    with pytest.raises(BadInput, match="which"):

        @app.task(unique="{nobody}", name="wrong")
        def wrong() -> None: ...

    assert "wrong" not in app.tasks


def test_a_queue_may_deliver_at_most_once(app: Dueline) -> None:
    # C8
    calls: list[int] = []
    app.queue("once", deliver="at_most_once")

    @app.task(name="charge", queue="once")
    def charge(order: int) -> None:
        calls.append(order)
        raise OSError("the bank does not answer")

    job = charge.enqueue(7)
    app.run_worker(["once"], burst=True)
    with pytest.raises(JobFailed, match="dead: OSError"):
        job.result()
    assert calls == [7]
    with pytest.raises(BadInput):
        app.queue("once", deliver="twice")  # type: ignore[arg-type]


def test_a_waiting_job_is_changed_through_its_handle(
    app: Dueline, greet: Task[..., str], clock: HandClock
) -> None:
    # C20
    job = greet.using(after=60).enqueue("ann")
    for change in (
        job.reschedule,
        lambda: job.reschedule(due=NOW, after=3),
        lambda: job.reschedule(due=datetime(2030, 1, 1)),  # noqa: DTZ001  (naive: refused)
        lambda: job.reschedule(after=-1),
        lambda: job.change(priority=2**40),
    ):
        refused(change)
    job.reschedule(after=10)
    assert row_of(app, job.id).at_us == NOW_US + 10 * SECOND_US
    job.reschedule(due=NOW + timedelta(seconds=20))
    job.change(priority=5)
    row = row_of(app, job.id)
    assert (row.at_us, row.lane.priority) == (NOW_US + 20 * SECOND_US, 5)
    clock.advance(20)
    app.run_worker(["default"], burst=True)
    assert job.result(0) == "hello ann"
    with pytest.raises(Conflict):
        job.reschedule(after=1)


def refused(change: Callable[[], None]) -> None:
    """See a change refused."""
    with pytest.raises(BadInput):
        change()


PRODUCER = """
import sys
from contextlib import suppress
from dueline import Dueline; from dueline import Duplicate
app = Dueline("sqlite:///race.db")

@app.task(name="greet")
def greet(to: str) -> None: ...

print("ready", flush=True)
sys.stdin.readline()
for number in range(20):
    with suppress(Duplicate):
        greet.using(unique="{to}").enqueue(str(number))
"""


@pytest.mark.long
def test_processes_race_for_keys(tmp_path: Path) -> None:
    # C12
    producers = [
        subprocess.Popen(
            [sys.executable, "-c", PRODUCER],
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for one in producers:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in producers:
        assert one.communicate("go\n", timeout=120)[0] == ""
        assert one.returncode == 0
    app = Dueline(f"sqlite:///{tmp_path / 'race.db'}")
    bodies = sorted(row.body for row in app.queues.engine.jobs_of("default"))
    app.close()
    assert bodies == sorted(f'["{number}"]'.encode() for number in range(20))


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "what"),
    [
        ("shop.far", "ann", {}, "`args` must be a list or tuple"),
        ("shop.far", {"to": "ann"}, {}, "`args` must be a list or tuple"),
        ("shop.far", 5, {}, "`args` must be a list or tuple"),
        ("shop.far", ["ann"], ["ben"], "`kwargs` must be a dict by name"),
        ("shop.far", [], {1: "ann"}, "`kwargs` must be a dict by name"),
        (None, [], {}, "`name` must be the name of a task"),
        (len, ["ann"], {}, "`name` must be the name of a task"),
    ],
)
def test_a_call_by_name_has_a_list_and_a_dict(
    app: Dueline,
    name: Any,  # noqa: ANN401
    args: Any,  # noqa: ANN401
    kwargs: Any,  # noqa: ANN401
    what: str,
) -> None:
    with pytest.raises(BadInput, match=re.escape(what)):
        app.send(name, args, kwargs)
