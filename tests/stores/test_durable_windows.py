"""Parts of long logs of durable functions, on each kind of store (V8, W10, W15)."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dueline import BadInput, Dueline, DurableContext, Job, NotFound, Retry
from dueline.admin.functions import FunctionSummary, function_page, readable_value
from dueline.admin.job_views import details_of
from dueline.core.store import Record
from dueline.durable.sending import Sending
from dueline.durable.views import FunctionView, view_of
from dueline.durable.windows import Window
from tests.harness.addresses import IN_MEMORY, LONG_ON_CASSANDRA
from tests.harness.programs import WAIT_S, wait_for

EVERY = pytest.mark.parametrize("url", [*IN_MEMORY, *LONG_ON_CASSANDRA], indirect=True)
STEPS = 130


def declare(app: Dueline) -> Any:  # noqa: ANN401  (a task)
    """Declare a function of many steps, of each of which several things are recorded."""
    tries: list[int] = []

    def number(n: int) -> int:
        tries.append(n)
        if n % 40 == 7 and tries.count(n) == 1:
            raise ValueError(f"first attempt of {n}")
        return n

    @app.durable(name="long", retry=Retry(attempts=3, base=0, cap=0))
    def long(ctx: DurableContext, steps: int) -> str:
        for n in range(steps):
            ctx.step(number, n, name="number", undo=print)
        return str(ctx.wait_signal("go"))

    return long


def views(app: Dueline, job: Job[Any], window: Window | None) -> FunctionView:
    """Read a function."""
    return view_of(app.engine.store, job._id, app.engine.store.find([job._id])[0], window)


def expect_parts_of_the_whole(app: Dueline, job: Job[Any]) -> None:
    """Expect that each window of a function is a part of all its calls."""
    whole = views(app, job, None)
    assert whole.total == whole.last
    for most, to in [(1, 0), (7, 0), (7, 7), (7, 8), (50, 60), (50, 51), (500, 0), (3, 10_000)]:
        part = views(app, job, Window(most, to))
        last = min(to or whole.total, whole.total)
        assert (part.first, part.last) == (max(1, last - most + 1), last)
        expected = [call for call in whole.calls if part.first <= int(call.position) <= part.last]
        assert list(part.calls) == expected, (most, to)
        assert (part.total, part.end, part.generation) == (whole.total, whole.end, whole.generation)


@EVERY
def test_a_window_is_a_part_of_all_calls(url: str) -> None:
    """Compare windows while a function waits, after a reset, and while it is undone."""
    with closing(Dueline(url)) as app:
        long = declare(app)
        with app.worker():
            job = long.enqueue(STEPS)
            wait_for(lambda: job.explain().reason == "signal", "the function waits")
            expect_parts_of_the_whole(app, job)
            (call,) = views(app, job, Window(1, 8)).calls
            assert (call.tries, call.state, call.name) == (1, "done", "number")
            assert call.value is not None
            assert readable_value(call.value) == (7, "")
            assert call.began_us <= call.at_us == call.ended_us
            job.reset(to=60)
            wait_for(lambda: views(app, job, Window(1)).total > STEPS, "the steps are made again")
            expect_parts_of_the_whole(app, job)
            job.cancel()
            wait_for(lambda: job.status == "cancelled", "it is undone")
        expect_parts_of_the_whole(app, job)
        undone = views(app, job, Window(2, 60)).calls
        assert [(call.position, call.kind) for call in undone] == [
            ("59", "step"), ("60", "step"), ("60", "undo"), ("59", "undo"),
        ]  # fmt: skip


class CountingReads:
    """Counts the records that are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: Any) -> None:  # noqa: ANN401
        """Count from now on."""
        self.records = 0
        self._read: Callable[..., Sequence[Record]] = store.read
        monkeypatch.setattr(store, "read", self.read)

    def read(self, *args: Any, **options: Any) -> Sequence[Record]:  # noqa: ANN401
        """Read, and count."""
        records = self._read(*args, **options)
        self.records += len(records)
        return records


def test_pages_and_explanations_read_few_records_of_a_long_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with closing(Dueline("memory://")) as app:
        long = declare(app)
        with app.worker():
            job = long.enqueue(3_000)
            wait_for(lambda: job.explain().reason == "signal", "the function waits")
        reads = CountingReads(monkeypatch, app.engine.store)
        last = app.admin.function(job.id, most=50).function
        assert last is not None
        assert len(last.calls) == 50
        assert reads.records < 200
        reads.records = 0
        middle = app.admin.function(job.id, to=1_500, most=50).function
        assert middle is not None
        assert middle.last == 1_500
        assert reads.records < 200
        reads.records = 0
        (summary,) = function_page(app.engine).functions
        assert summary.awaited is not None
        assert summary.awaited.name == "go"
        assert reads.records < 200
        reads.records = 0
        assert "in call 3001 of long" in app.admin.explain(job.id).sentence
        assert reads.records < 500


@EVERY
def test_a_call_is_read_with_its_large_value_and_a_gather_with_its_jobs(url: str) -> None:
    with closing(Dueline(url)) as app:

        @app.task(name="twice", retry=Retry(attempts=1))
        def twice(n: int) -> int:
            if n == 3:
                raise ValueError("three")
            return 2 * n

        def large() -> str:
            return "x" * 20_000

        def fails() -> None:
            raise KeyError("nothing")

        @app.durable(name="parent", retry=Retry(attempts=1))
        def parent(ctx: DurableContext) -> int:
            ctx.step(large, name="large")
            results = ctx.gather([twice.call(n) for n in range(9)], return_exceptions=True)
            ctx.wait_signal("go")
            ctx.step(fails, name="fails")
            return len(results)

        with app.worker():
            job = parent.enqueue()
            wait_for(lambda: job.explain().reason == "signal", "the function waits")
            admin = app.admin
            whole = admin.call(job.id, 1)
            assert whole.call.is_apart
            assert whole.call.value is None
            assert whole.stored is not None
            assert readable_value(whole.stored) == ("x" * 20_000, "")
            jobs = admin.called_jobs(job.id, 2, after=2, limit=3)
            assert [(called.number, called.task, called.state) for called in jobs] == [
                (3, "twice", "done"), (4, "twice", "dead"), (5, "twice", "done"),
            ]  # fmt: skip
            assert "three" in jobs[1].error
            assert admin.called_jobs(job.id, 2, after=8) != []
            assert admin.called_jobs(job.id, 2, after=9) == []
            assert admin.called_jobs(job.id, 1) == []
            for position in (0, 9, 99):
                with pytest.raises(NotFound, match=f"has no call {position}"):
                    admin.call(job.id, position)
            job.signal("go")
            wait_for(lambda: job.status == "dead", "its step fails")
            failed = admin.call(job.id, 5)
            assert failed.stored is not None
            kind, text, traceback = readable_value(failed.stored)[0]
            assert (kind, text) == ("KeyError", "'nothing'")
            assert "Traceback" in traceback


def test_pages_of_functions_are_read_one_after_the_other() -> None:
    with closing(Dueline("memory://")) as app:

        @app.durable(name="nap")
        def nap(ctx: DurableContext) -> None:
            ctx.sleep(3600)

        @app.durable(name="ask")
        def ask(ctx: DurableContext) -> None:
            ctx.wait_signal("go")

        with app.worker():
            ids = {(nap if n % 2 else ask).enqueue()._id for n in range(7)}
            wait_for(
                lambda: (
                    all(each.awaited for each in function_page(app.engine).functions)
                    and len(function_page(app.engine).functions) == 7
                ),
                "they wait",
            )
        read: list[FunctionSummary] = []
        after: int | None = 0
        while after is not None:
            page = app.admin.functions(limit=3, after=after)
            read += page.functions
            after = page.next
        assert {each.id for each in read} == ids
        assert {(each.task, each.state) for each in read} == {
            ("nap", "sleeping"), ("ask", "waiting"),
        }  # fmt: skip
        assert [each.task for each in app.admin.functions(name="na").functions] == ["nap"] * 3
        assert app.admin.functions(state="stopped").functions == []


def test_operators_signal_reset_and_fork_and_that_is_recorded() -> None:
    with closing(Dueline("memory://")) as app:
        long = declare(app)
        change = app.admin.operations("ann")
        with app.worker():
            job = long.enqueue(3)
            wait_for(lambda: job.explain().reason == "signal", "the function waits")
            fork = change.fork(job._id, 2)
            change.reset(job._id, None)
            wait_for(lambda: job.explain().reason == "signal", "the function waits again")
            change.signal(job._id, Sending("go", b'"now"', "1"), {})
            assert job.result(timeout=WAIT_S) == "now"
            with pytest.raises(NotFound, match="can be signalled"):
                change.signal(job._id, Sending("go", b"1"), {})
        did = [(action.what, action.target, action.result) for action in app.admin.actions()]
        assert did[1:] == [
            ("signal go", job.id, "done"),
            ("reset function", job.id, "done"),
            ("fork function after call 2", job.id, fork.hex()),
        ]
        assert did[0][2].startswith("rejected: ")
        assert fork != job._id
        assert details_of(app.queues, fork).function is not None


def test_a_function_with_compressed_arguments_is_signalled_without_its_code() -> None:
    with closing(Dueline("memory://")) as app:
        app.payloads.use("json", compress_above=100)

        @app.durable(name="wait")
        def wait(ctx: DurableContext, text: str) -> str:
            return f"{len(text)} {ctx.wait_signal('go')}"

        with app.worker():
            job = wait.enqueue("x" * 1_000)
            app.admin.operations("ann").signal(job._id, Sending("go", b'"now"'), {})
            assert job.result(timeout=WAIT_S) == "1000 now"


def test_a_function_with_arguments_in_a_blob_is_signalled_by_its_code_only(tmp_path: Path) -> None:
    with closing(Dueline("memory://", blobs=f"file://{tmp_path}")) as app:

        def large() -> str:
            return "y" * 200_000

        @app.durable(name="wait")
        def wait(ctx: DurableContext, text: str) -> str:
            return f"{len(text)} {len(ctx.step(large, name='large'))} {ctx.wait_signal('go')}"

        with app.worker():
            job = wait.enqueue("x" * 100_000)
            wait_for(lambda: job.explain().reason == "signal", "the function waits")
            (step, _) = views(app, job, Window(2)).calls
            assert step.value is not None
            shown, hidden = readable_value(step.value)
            assert (shown["size"], hidden) == (200_002, "")
            change = app.admin.operations("ann")
            with pytest.raises(BadInput, match="or may have one"):
                change.signal(job._id, Sending("go", b'"now"'), {})
            change.signal(job._id, Sending("go", b'"now"'), app.tasks)
            assert job.result(timeout=WAIT_S) == "100000 200000 now"
