"""Dead durable functions retried by each face, on each kind of store (W15, rules D5, D8, D13)."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Final

import pytest

from dueline import Conflict, Dueline, DurableContext, Job, Retry, pipeline
from dueline.admin.search import JobFilter
from dueline.jobs.bulk import retry_all
from dueline.web import api
from tests.harness.addresses import IN_MEMORY, LONG_ON_CASSANDRA
from tests.harness.http_api import Program
from tests.harness.programs import WAIT_S, wait_for

EVERY = pytest.mark.parametrize("url", [*IN_MEMORY, *LONG_ON_CASSANDRA], indirect=True)
ONCE: Final = Retry(attempts=1)

Face = Callable[[Dueline, Job[Any]], object]


def by_rows(app: Dueline, job: Job[Any]) -> None:
    """Retry as `dueline jobs retry --all-matching` and a paced redrive do."""
    row = app.queues.find(job._id).row
    assert row is not None
    assert [page.done for page in retry_all(app.queues, [row])] == [1]


def in_bulk(app: Dueline, job: Job[Any]) -> None:
    """Retry as the dashboard does with all that match."""
    assert job.status == "dead"
    like = JobFilter("dead", task="trip")
    assert app.admin.operations("ann").bulk("retry", like, "dead").done == 1


FACES: Final[Mapping[str, Face]] = {
    "a handle": lambda _, job: job.retry(),
    "the dashboard": lambda app, job: app.admin.operations("ann").retry(job._id),
    "the HTTP API": lambda app, job: Program(api(app, role="operator")).call(
        "POST", f"/jobs/{job.id}/retry"
    ),
    "rows": by_rows,
}


class Trip:
    """A function whose second step fails. calls: of its steps, by name and argument."""

    def __init__(self, app: Dueline) -> None:
        """Declare it."""
        self.calls: Counter[str] = Counter()
        self.fails = True
        self.undone: list[str] = []
        self.has_undo = False

        def book(what: str) -> str:
            self.calls[what] += 1
            if what.startswith("hotel") and self.fails:
                raise ValueError("full")
            return what.upper()

        @app.durable(name="trip", retry=ONCE)
        def trip(ctx: DurableContext, number: int) -> list[str]:
            undo = self.undone.append if self.has_undo else None
            car = ctx.step(book, f"car {number}", name="car", undo=undo)
            return [car, ctx.step(book, f"hotel {number}", name="hotel")]

        @app.task(name="after")
        def after(booked: list[str]) -> int:
            return len(booked)

        self.task: Any = trip
        self.after: Any = after


@EVERY
def test_each_face_retries_what_failed_and_runs_nothing_else_again(url: str) -> None:
    """Let a function die for each face, mend the cause, and retry it by that face."""
    with closing(Dueline(url)) as app:
        trip = Trip(app)
        jobs = {name: trip.task.enqueue(n) for n, name in enumerate(FACES)}
        rest = trip.task.enqueue(len(FACES))
        flow = app.start(pipeline(trip.task.step(len(FACES) + 1), trip.after.step()))
        with app.worker():
            wait_for(
                lambda: all(job.status == "dead" for job in [*jobs.values(), rest, flow.step(0)]),
                "the functions are dead",
            )
            trip.fails = False
            for name, job in jobs.items():
                FACES[name](app, job)
            assert flow.retry() == 1
            for n, job in enumerate(jobs.values()):
                assert job.result(timeout=WAIT_S) == [f"CAR {n}", f"HOTEL {n}"]
            in_bulk(app, rest)
            assert rest.result(timeout=WAIT_S)[1] == f"HOTEL {len(FACES)}"
            assert flow.result(timeout=WAIT_S) == 2
        for n in range(len(FACES) + 2):
            assert (trip.calls[f"car {n}"], trip.calls[f"hotel {n}"]) == (1, 2)


@EVERY
def test_no_face_retries_a_function_that_was_compensated(url: str) -> None:
    """Retry a dead function whose compensations ran: it stays dead, and says so."""
    with closing(Dueline(url)) as app:
        trip = Trip(app)
        trip.has_undo = True
        with app.worker():
            job = trip.task.enqueue(1)
            wait_for(lambda: job.status == "dead", "the functions are dead")
            for name in ("a handle", "the dashboard"):
                with pytest.raises(Conflict, match="compensations ran"):
                    FACES[name](app, job)
            row = app.queues.find(job._id).row
            assert row is not None
            assert [page.left for page in retry_all(app.queues, [row])] == [1]
        assert (job.status, trip.undone) == ("dead", ["CAR 1"])


@EVERY
def test_a_retry_runs_a_step_that_waits_for_its_next_attempt_now(url: str) -> None:
    """Retry functions in the backoff of a step, by a handle and in bulk; a sleep is not cut."""
    calls: Counter[str] = Counter()
    with closing(Dueline(url)) as app:

        def fetch(name: str) -> str:
            calls[name] += 1
            if calls[name] < 3:
                raise ConnectionError("no route")
            return name

        def load(ctx: DurableContext, name: str) -> str:
            slowly = Retry(attempts=5, base=3600, cap=3600, jitter=0)
            value: str = ctx.step(fetch, name, name="fetch", retry=slowly)
            ctx.sleep(3600)
            return value

        names = "by hand", "in bulk"
        tasks = [app.durable(name=name)(load) for name in names]
        with app.worker():
            jobs = [task.enqueue(name) for task, name in zip(tasks, names, strict=True)]
            for attempt in (1, 2):
                wait_for(
                    lambda: all(job.explain().reason == "retrying" for job in jobs),
                    "the step waits for its next attempt",
                )
                assert [calls[name] for name in names] == [attempt, attempt]
                jobs[0].retry()
                like = JobFilter("scheduled", task="in bulk")
                assert app.admin.operations("ann").bulk("retry", like, "in bulk").done == 1
                wait_for(lambda: min(calls.values()) == attempt + 1, "each step was called again")  # noqa: B023
            wait_for(
                lambda: all(job.explain().reason == "sleep" for job in jobs), "the functions sleep"
            )
            jobs[0].retry()
            wait_for(lambda: jobs[0].explain().reason == "sleep", "the functions sleep")
            assert [job.status for job in jobs] == ["scheduled", "scheduled"]
