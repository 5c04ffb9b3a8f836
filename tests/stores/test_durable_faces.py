"""What people see of durable functions, on each kind of store (W10, W13)."""

from collections.abc import Callable
from contextlib import closing

import pytest

from dueline import Dueline, DurableContext, Job, Retry
from dueline.admin.functions import list_functions
from dueline.admin.health import examine
from dueline.admin.job_views import details_of
from dueline.durable.stopped import forget_resumed, stopped_in
from dueline.jobs.history import attempts
from tests.harness.addresses import IN_MEMORY, LONG_ON_CASSANDRA
from tests.harness.programs import wait_for

WAIT_S = 60.0

EVERY = pytest.mark.parametrize("url", [*IN_MEMORY, *LONG_ON_CASSANDRA], indirect=True)


@EVERY
def test_a_function_that_waits_is_stopped_and_ends_is_shown_as_that(url: str) -> None:
    """Wait for a signal, stop by other code, and end by its own."""
    names = ["one"]
    app = Dueline(url)

    @app.durable(name="shown")
    def shown(ctx: DurableContext) -> str:
        value: str = ctx.step(str, "x", name=names[0])
        return value + str(ctx.wait_signal("go"))

    engine = app.engine
    with app.worker():
        job = shown.enqueue()
        wait_for(lambda: job.explain().reason == "signal", "the function waits for a signal")
        assert "in call 2 of shown" in str(job.explain())
        (waiting,) = list_functions(engine, state="waiting", name="shown")
        assert waiting.id == job._id
        names[0] = "two"
        job.signal("go", "y")
        wait_for(lambda: bool(stopped_in(engine, "default")), "the function is stopped")
        assert "call 1 was one, the code now calls two" in str(job.explain())
        assert [check.verdict for check in examine(engine).checks if check.name == "functions"] == [
            "warning"
        ]
        view = details_of(app.queues, job._id).function
        assert view is not None
        assert [(call.position, call.kind, call.state) for call in view.calls] == [
            ("1", "step", "done"),
            ("2", "signal", "waiting"),
        ]
        assert view.unread == {"go": 1}
        forget_resumed(engine, "default")
        assert [row.id for row, _ in stopped_in(engine, "default")] == [job._id]
        names[0] = "one"
        job.retry()
        assert job.result(timeout=WAIT_S) == "xy"
        forget_resumed(engine, "default")
        assert engine.store.read("durable-stopped/default", after=None, limit=1) == []
        wait_for(lambda: [each.state for each in list_functions(engine)] == ["done"], "its end")
        ended = details_of(app.queues, job._id).function
        assert ended is None or not ended.open_calls
    app.close()


def waits_for(job: Job[None], what: str) -> Callable[[], bool]:
    """Return whether a function waits for something."""
    return lambda: job.explain().reason == what


@EVERY
def test_a_forecast_says_what_it_cannot_know_of_a_function(url: str) -> None:
    """Explain a function that sleeps, waits for a signal, and waits for a job that it called."""
    with closing(Dueline(url)) as app:
        never = "how often the durable function runs before it ends"

        @app.task(name="slow")
        def slow() -> None: ...

        @app.durable(name="shown")
        def shown(ctx: DurableContext, what: str) -> None:
            if what == "sleep":
                ctx.sleep(600)
            elif what == "signal":
                ctx.wait_signal("go")
            else:
                ctx.call(slow.using(after=600))

        awaited = {"sleep": "", "signal": "when the signal go is sent", "calls": "when it ends"}
        with app.worker():
            for what, unknown in awaited.items():
                job = shown.enqueue(what)
                wait_for(waits_for(job, what), what)
                explanation = job.explain()
                words = f"{unknown}, and {never}" if unknown else never
                assert explanation.sentence.endswith(f" It is not known {words}.")
                assert {unknown or never, never} <= {*explanation.unknown}
                known = f"{unknown} is not known" if unknown else None
                assert explanation.facts.get("no_forecast") == known
                assert "expected start" not in explanation.sentence


@EVERY
def test_each_record_is_one_row_of_a_history_of_all_events(url: str) -> None:
    """Retry, fail, compensate and call; compare the rows with the log."""
    with closing(Dueline(url)) as app:
        app.queue("default", history="all")
        seen: list[int] = []

        def pay(amount: int) -> int:
            seen.append(amount)
            if len(seen) == 1:
                raise ConnectionError
            return amount

        @app.task(name="ship")
        def ship() -> None: ...

        @app.durable(name="order", retry=Retry(attempts=1))
        def order(ctx: DurableContext) -> None:
            quick = Retry(attempts=2, delays=[0])
            ctx.step(pay, 5, name="pay all", retry=quick, undo=lambda _: None)
            ctx.sleep(0.2)
            ctx.call(ship)
            raise ValueError("no")

        with app.worker():
            job = order.enqueue()
            wait_for(lambda: job.status == "dead", "it has failed")
        shards = app.engine.catalog.settings("default").shards_read
        events = attempts(app.store, "default", shards, everything=True)
        own = [event for event in events if event.job == job.id]
        recorded = sorted(event.error for event in own if event.outcome == "recorded")
        called = next(text.split()[5] for text in recorded if " call " in text)
        assert recorded == sorted([
            "0 1 step done undo - pay all", "0 2 sleep done - -", f"0 3 call done - {called} ship",
            "0 4 result done - - ship", "0 - end failed - -", "0 1 undo done - - pay all",
        ])  # fmt: skip
        assert app.job(called).status == "done"
        outcomes = [event.outcome for event in own if event.worker]
        assert outcomes[-1] == "dead"
        assert set(outcomes[:-1]) == {"suspended"}


@EVERY
def test_other_histories_have_only_the_end_of_a_function(url: str) -> None:
    """Sleep once: the row of the end has the number of the runs."""
    with closing(Dueline(url)) as app:

        @app.durable(name="order")
        def order(ctx: DurableContext) -> None:
            ctx.step(len, [1], name="count")
            ctx.sleep(0.3)

        with app.worker():
            job = order.enqueue()
            job.result(timeout=WAIT_S)
        shards = app.engine.catalog.settings("default").shards_read
        (end,) = attempts(app.store, "default", shards, everything=True)
        assert (end.job, end.outcome) == (job.id, "done")
        assert end.fence >= 1
