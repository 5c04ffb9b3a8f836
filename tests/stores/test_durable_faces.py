"""What people see of durable functions, on each kind of store (W10, W13)."""

import pytest

from dueline import Dueline, DurableContext
from dueline.admin.functions import list_functions
from dueline.admin.health import examine
from dueline.admin.job_views import details_of
from dueline.durable.stopped import forget_resumed, stopped_in
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
        assert [each.state for each in list_functions(engine)] == ["done"]
        ended = details_of(app.queues, job._id).function
        assert ended is None or not ended.open_calls
    app.close()
