"""Durable functions by the public interface, on each kind of store."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event
from typing import Any

import pytest

from dueline import Cancel, Conflict, Dueline, DurableContext, Job, JobFailed, Retry, StepFailed
from tests.harness.addresses import IN_MEMORY, LONG_ON_CASSANDRA
from tests.harness.programs import WAIT_S, wait_for

EVERY = pytest.mark.parametrize("url", [*IN_MEMORY, *LONG_ON_CASSANDRA], indirect=True)


@dataclass
class Charge:
    """What a step returns."""

    amount: int
    at: datetime
    parts: tuple[str, ...]
    raw: bytes


def parked(job: Job[Any]) -> Callable[[], bool]:
    """Return whether the function waits."""
    return lambda: job.status == "scheduled"


def charge(amount: int) -> Charge:
    """Return a value of all kinds."""
    return Charge(amount, datetime(2026, 1, 2, tzinfo=UTC), ("a", "b"), b"\0\xff")


@EVERY
def test_a_replay_gives_the_values_of_the_first_run(url: str) -> None:
    """Run a step, wait, and compare what the two runs saw."""
    seen: list[tuple[object, ...]] = []
    with closing(Dueline(url)) as app:

        @app.durable(name="order")
        def order(ctx: DurableContext, amount: int) -> int:
            paid = ctx.step(charge, amount)
            drawn = (ctx.uuid(), ctx.uuid(), ctx.random().random(), ctx.now(), ctx.key)
            seen.append((paid, *drawn))
            ctx.sleep(0.3)
            count: int = ctx.step(len, [1, 2, 3], name="count")
            return count + int(paid.amount)

        with app.worker():
            job = order.enqueue(5)
            assert job.result(timeout=WAIT_S) == 8
        assert len(seen) == 2
        assert seen[0] == seen[1]
        assert seen[0][0] == charge(5)
        assert [(step.position, step.kind, step.name) for step in job.steps()] == [
            ("1", "step", "charge"),
            ("2", "sleep", ""),
            ("3", "step", "count"),
        ]


@EVERY
def test_a_coroutine_function_waits_for_signals_and_steps(url: str) -> None:
    """Send signals before and while a function waits; take them in their order."""
    calls: list[str] = []
    with closing(Dueline(url)) as app:

        async def ask(question: str) -> str:
            await asyncio.sleep(0)
            calls.append(question)
            return question.upper()

        @app.durable(name="agent")
        async def agent(ctx: DurableContext) -> list[Any]:
            first = await ctx.wait_signal("go", type=int)
            await ctx.state({"got": first})
            answer = await ctx.step(ask, "why", name="ask", timeout=30)
            second = await ctx.wait_signal("go", type=int)
            missing = await ctx.wait_signal("never", timeout=0.2, default="late")
            return [first, answer, second, missing]

        with app.worker():
            job = agent.enqueue()
            wait_for(parked(job), "the function waits")
            job.signal("go", 1, id="a")
            job.signal("go", 7, id="a")
            wait_for(lambda: calls == ["why"], "the step was called")
            assert job.state == {"got": 1}
            job.signal("go", 2)
            assert job.result(timeout=WAIT_S) == [1, "WHY", 2, "late"]
        assert calls == ["why"]
        with pytest.raises((Conflict, LookupError)):
            job.signal("go", 3)


@EVERY
def test_a_failure_undoes_what_was_done_last_first(url: str) -> None:
    """Register compensations, then fail by a step, by own code, and by a cancel."""
    undone: list[object] = []
    with closing(Dueline(url)) as app:

        def book(what: str) -> str:
            return f"no {what}"

        def refuse() -> None:
            raise ValueError("full")

        def undo(what: str) -> None:
            undone.append(what)

        @app.durable(name="trip", retry=Retry(attempts=2, base=0.01))
        def trip(ctx: DurableContext, how: str) -> str:
            ctx.step(book, "car", undo=undo, name="car")
            ctx.step(book, "hotel", undo=undo, name="hotel")
            if how == "step":
                ctx.step(refuse, name="refuse", retry=Retry(attempts=1))
            if how == "code":
                raise RuntimeError("mine")
            if how == "caught":
                try:
                    ctx.step(refuse, name="refuse", retry=Retry(attempts=1))
                except StepFailed as error:
                    return f"{error.type} {error.text}"
            ctx.wait_signal("go")
            return how

        with app.worker():
            for how, text in (("step", "StepFailed"), ("code", "RuntimeError: mine")):
                with pytest.raises(JobFailed, match=text):
                    trip.enqueue(how).result(timeout=WAIT_S)
                assert undone == ["no hotel", "no car"]
                undone.clear()
            assert trip.enqueue("caught").result(timeout=WAIT_S) == "ValueError full"
            job = trip.enqueue("waits")
            wait_for(parked(job), "the function waits")
            assert job.cancel() is False
            with pytest.raises(JobFailed, match="cancelled"):
                job.result(timeout=WAIT_S)
            assert undone == ["no hotel", "no car"]


@EVERY
def test_a_worker_that_stops_suspends_a_function_at_its_next_call(url: str) -> None:
    """Stop a worker while a step runs; another worker goes on after it."""
    started = Event()
    calls: list[int] = []

    def first(ctx: DurableContext) -> int:
        calls.append(1)
        started.set()
        wait_for(lambda: ctx._run._control.is_draining, "the worker stops")
        return 1

    def second(number: int) -> int:
        calls.append(2)
        return number + 1

    with closing(Dueline(url)) as app:

        @app.durable(name="two")
        def two(ctx: DurableContext) -> int:
            number: int = ctx.step(second, ctx.step(first, ctx, name="first"), name="second")
            return number

        job = two.enqueue()
        with app.worker():
            assert started.wait(WAIT_S)
        assert calls == [1]
        assert [step.name for step in job.steps()] == ["first"]
        row = app.queues.find(job._id).row
        assert row is not None
        assert (row.errors, row.crashes) == (0, 0)
        with app.worker():
            assert job.result(timeout=WAIT_S) == 2
        assert calls == [1, 2]


@EVERY
def test_a_cancel_is_delivered_once_and_may_be_caught(url: str) -> None:
    """Catch the cancel of a sleep, and go on."""
    with closing(Dueline(url)) as app:

        @app.durable(name="nap")
        def nap(ctx: DurableContext) -> str:
            try:
                ctx.sleep(3600)
            except Cancel:
                word: str = ctx.step(str, "woken", name="woken")
                return word
            return "slept"

        with app.worker():
            job = nap.enqueue()
            wait_for(parked(job), "the function waits")
            job.cancel()
            assert job.result(timeout=WAIT_S) == "woken"


def stored_error(app: Dueline, job: Job[Any]) -> str:
    """Return the error of the function's row."""
    row = app.queues.find(job._id).row
    return "" if row is None else row.error


@EVERY
def test_other_code_stops_a_function_and_ends_nothing(url: str) -> None:
    """Run a function by code that calls something else, then by its own."""
    names = ["one"]
    with closing(Dueline(url)) as app:

        @app.durable(name="changed")
        def changed(ctx: DurableContext) -> str:
            value: str = ctx.step(str, "x", name=names[0])
            ctx.wait_signal("go")
            return value

        with app.worker():
            job = changed.enqueue()
            wait_for(parked(job), "the function waits")
            names[0] = "two"
            job.signal("go")
            wait_for(
                lambda: "was one, the code now calls two" in stored_error(app, job),
                "the function is stopped",
            )
            names[0] = "one"
            job.retry()
            assert job.result(timeout=WAIT_S) == "x"
