"""Traces with OpenTelemetry."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode

from dueline import (
    ConfigError,
    Context,
    Dueline,
    DurableContext,
    Job,
    QuotaExceeded,
    Retry,
    Snooze,
    group,
    pipeline,
    wait_for,
)
from dueline.contrib import otel


class Spans:
    """A provider of tracers that keeps the spans that ended."""

    def __init__(self) -> None:
        self.provider = TracerProvider(shutdown_on_exit=False)
        self._kept = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._kept))

    def take(self) -> list[ReadableSpan]:
        """Return the spans that ended, in the order of their starts."""
        return sorted(self._kept.get_finished_spans(), key=lambda one: one.start_time or 0)


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def app() -> Iterator[Dueline]:
    made = Dueline("memory://")
    yield made
    made.close()


def trace_of(span: ReadableSpan) -> int:
    return int(span.context.trace_id)


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def of(span: ReadableSpan, name: str) -> object:
    return (span.attributes or {}).get(name)


def test_an_enqueue_its_run_and_what_it_enqueues_are_one_trace(app: Dueline, spans: Spans) -> None:
    otel.instrument(app, provider=spans.provider)

    @app.task(name="mail", queue="mail", priority=3)
    async def mail(to: str) -> None:
        await asyncio.sleep(0)

    @app.task(name="charge", queue="shop")
    def charge(order: int) -> None:
        mail.enqueue(f"buyer of {order}")

    with spans.provider.get_tracer("test").start_as_current_span("request"):
        job = charge.using(headers={"shop": "north"}).enqueue(7)
    app.run_worker(burst=True)
    request, *rest = spans.take()
    assert [one.name for one in rest] == [
        "enqueue shop", "process shop", "enqueue mail", "process mail",
    ]  # fmt: skip
    assert {trace_of(one) for one in rest} == {trace_of(request)}
    for before, after in zip([request, *rest], rest, strict=False):
        assert parent_of(after) == before.context.span_id
    enqueue, process, *_, last = rest
    assert (enqueue.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert of(enqueue, "messaging.message.id") == job.id == of(process, "messaging.message.id")
    assert process.links[0].context.span_id == enqueue.context.span_id
    assert of(process, "dueline.task") == "charge"
    assert of(last, "dueline.priority") == 3


def test_the_steps_of_a_workflow_continue_the_trace_of_its_start(
    app: Dueline, spans: Spans
) -> None:
    # V6
    otel.instrument(app, provider=spans.provider)
    seen: list[dict[str, str]] = []

    @app.task(name="add")
    def add(ctx: Context, one: int) -> int:
        seen.append(ctx.headers)
        return one + 1

    app.start(wait_for("go"))  # nothing runs, so nothing is traced
    own = add.using(headers={"by": "ann"}).step(1)
    with spans.provider.get_tracer("shop").start_as_current_span("request") as request:
        flow = app.start(pipeline(own, group(add.step(), add.step()), wait_for("go")))
        app.quota("default", depth=1)
        with pytest.raises(QuotaExceeded):
            app.start(group(add.step(1), add.step(2)))
    app.run_worker(burst=True, concurrency=1)
    assert flow.progress.done == 3
    taken = spans.take()
    started, refused = (one for one in taken if one.kind is SpanKind.PRODUCER)
    assert (of(started, "messaging.batch.message_count"), of(refused, "error.type")) == (
        3, "QuotaExceeded",
    )  # fmt: skip
    runs = [one for one in taken if one.kind is SpanKind.CONSUMER]
    assert len(runs) == 3
    assert {parent_of(one) for one in runs} == {started.context.span_id}
    assert {trace_of(one) for one in taken} == {request.get_span_context().trace_id}
    assert [one.get("by") for one in seen] == ["ann", None, None]


def test_attempts_may_begin_traces_that_are_linked(app: Dueline, spans: Spans) -> None:
    otel.instrument(app, provider=spans.provider, new_traces=True)
    waits: list[int] = []

    @app.task(name="fail", retry=Retry(attempts=2, delays=[0]))
    def fail(ctx: Context) -> NoReturn:
        if not waits:
            waits.append(1)
            raise Snooze(0)
        raise ValueError("no")

    fail.enqueue()
    app.run_worker(burst=True)
    enqueue, *runs = spans.take()
    assert len({trace_of(one) for one in (enqueue, *runs)}) == 4
    assert [one.links[0].context.trace_id for one in runs] == 3 * [trace_of(enqueue)]
    assert [of(one, "dueline.attempt") for one in runs] == [1, 1, 2]
    assert [of(one, "error.type") for one in runs] == [None, "ValueError", "ValueError"]
    assert of(runs[0], "dueline.outcome") == "snooze"
    assert [one.status.status_code for one in runs] == [
        StatusCode.UNSET, StatusCode.ERROR, StatusCode.ERROR,
    ]  # fmt: skip


def test_calls_that_are_stored_together_and_calls_that_fail(app: Dueline, spans: Spans) -> None:
    otel.instrument(app, provider=spans.provider)
    app.quota("few", depth=3)

    @app.task(name="add", queue="few")
    def add(number: int) -> None: ...

    add.enqueue_many([(1,), (2,)])
    jobs = app.enqueue_many([add.call(3), add.using(queue="other").call(4)])
    with pytest.raises(QuotaExceeded):
        add.enqueue(5)
    many, third, fourth, failed = spans.take()
    assert of(many, "messaging.batch.message_count") == 2
    assert [of(third, "messaging.message.id"), of(fourth, "messaging.message.id")] == [
        one.id for one in jobs
    ]
    assert (of(failed, "error.type"), failed.status.status_code) == (
        "QuotaExceeded", StatusCode.ERROR,
    )  # fmt: skip


def test_without_an_sdk_nothing_is_stored(app: Dueline) -> None:
    otel.instrument(app, provider=trace.NoOpTracerProvider())
    seen: list[dict[str, str]] = []

    @app.task(name="look")
    def look(ctx: Context) -> None:
        seen.append(ctx.headers)

    look.enqueue()
    app.run_worker(burst=True)
    assert seen == [{}]
    with pytest.raises(ConfigError, match="already"):
        otel.instrument(app)


def is_within(outer: ReadableSpan, inner: ReadableSpan) -> bool:
    times = (outer.start_time, inner.start_time, inner.end_time, outer.end_time)
    return sorted(times, key=lambda at: at or 0) == [*times]


def declared(
    app: Dueline, charge: Callable[[int], int], *, is_async: bool
) -> Callable[[], Job[None]]:
    """Return the call of a durable function with two steps, a sleep and a call."""
    quick = Retry(attempts=2, delays=[0])

    @app.task(name="ship")
    def ship() -> None: ...

    if not is_async:

        @app.durable(name="order")
        def order(ctx: DurableContext) -> None:
            ctx.step(charge, 5, name="charge", retry=quick)
            ctx.sleep(0.5)
            ctx.call(ship)
            ctx.step(len, [1], name="count")

        return order.enqueue

    @app.durable(name="order")
    async def aorder(ctx: DurableContext) -> None:
        await ctx.step(charge, 5, name="charge", retry=quick)
        await ctx.sleep(0.5)
        await ctx.call(ship)
        await ctx.step(len, [1], name="count")

    return aorder.enqueue


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "coroutine"])
@pytest.mark.parametrize("new_traces", [False, True], ids=["continued", "new"])
def test_a_durable_function_has_one_trace(
    app: Dueline, spans: Spans, *, is_async: bool, new_traces: bool
) -> None:
    otel.instrument(app, provider=spans.provider, new_traces=new_traces)
    tries: list[int] = []

    def charge(amount: int) -> int:
        with spans.provider.get_tracer("bank").start_as_current_span("bank"):
            tries.append(amount)
        if len(tries) < 2:
            raise ConnectionError("away")
        return amount

    enqueue_order = declared(app, charge, is_async=is_async)
    with app.worker():
        enqueue_order().result(timeout=30)
    enqueue, *taken = spans.take()
    runs = [each for each in taken if of(each, "dueline.task") == "order" and each.links]
    *parked, last = runs
    assert {of(each, "dueline.outcome") for each in parked} == {"suspended"}
    assert of(last, "dueline.outcome") is None
    assert {each.status.status_code for each in runs} == {StatusCode.UNSET}
    assert {each.links[0].context.span_id for each in runs} == {enqueue.context.span_id}
    ((trace_id, _),) = {(trace_of(each), parent_of(each)) for each in runs}
    assert (trace_id == trace_of(enqueue)) is not new_traces
    steps = [each for each in taken if each.name.startswith("step ")]
    assert [
        (each.name, of(each, "dueline.position"), of(each, "dueline.attempt")) for each in steps
    ] == [("step charge", "1", 1), ("step charge", "1", 2), ("step count", "5", 1)]
    assert [of(each, "error.type") for each in steps] == ["ConnectionError", None, None]
    for run, step in zip((runs[0], runs[0], last), steps, strict=True):
        assert parent_of(step) == run.context.span_id
        assert is_within(run, step)
    banks = [each for each in taken if each.name == "bank"]
    assert [parent_of(each) for each in banks] == [each.context.span_id for each in steps[:2]]
    called, run = (each for each in taken if of(each, "dueline.task") == "ship")
    assert (called.kind, parent_of(called)) == (SpanKind.PRODUCER, runs[1].context.span_id)
    assert run.links[0].context.span_id == called.context.span_id


def test_a_durable_function_that_fails_and_its_compensations(app: Dueline, spans: Spans) -> None:
    otel.instrument(app, provider=spans.provider)

    def pay() -> str:
        return "paid"

    def refund(paid: str) -> None: ...

    @app.durable(name="order", retry=Retry(attempts=1))
    def order(ctx: DurableContext) -> None:
        ctx.step(pay, name="pay", undo=refund)
        raise ValueError("no")

    order.enqueue()
    app.run_worker(burst=True)
    run, _, undo = spans.take()[1:]
    assert (undo.name, parent_of(undo), of(undo, "dueline.position")) == (
        "undo pay", run.context.span_id, "1",
    )  # fmt: skip
    assert (of(run, "error.type"), run.status.status_code) == ("ValueError", StatusCode.ERROR)


def test_a_durable_function_without_a_caller_has_one_trace(app: Dueline, spans: Spans) -> None:
    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(0.5)), shutdown_on_exit=False)
    kept = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    runs: Counter[str] = Counter()

    @app.durable(name="order")
    def order(ctx: DurableContext) -> None:
        runs[ctx.job_id.hex()] += 1
        ctx.sleep(0.3)

    jobs = [order.enqueue() for _ in range(40)]
    otel.instrument(app, provider=provider)  # later: no enqueue has a span, as in schedules
    with app.worker():
        for job in jobs:
            job.result(timeout=30)
    taken = kept.get_finished_spans()
    traces = {of(each, "messaging.message.id"): trace_of(each) for each in taken}
    assert {trace_of(each) for each in taken} == {*traces.values()}
    sampled = {job_id: number for job_id, number in runs.items() if job_id in traces}
    assert Counter(of(each, "messaging.message.id") for each in taken) == sampled
    assert 5 < len(traces) < 35


PROGRAM = """
import json
import sys

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from dueline import Dueline
from dueline.contrib import otel

app, kept, provider = Dueline(sys.argv[1]), InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(kept))
otel.instrument(app, provider=provider)


@app.task(name="add")
def add(number: int) -> None: ...


app.run_worker(burst=True)
print(json.dumps([[one.context.trace_id, one.parent.span_id] for one in kept.get_finished_spans()]))
"""


@pytest.mark.slow
def test_a_run_in_another_process_continues_the_trace(tmp_path: Path, spans: Spans) -> None:
    app = Dueline(f"sqlite:///{tmp_path}/jobs.db")
    otel.instrument(app, provider=spans.provider)

    @app.task(name="add")
    def add(number: int) -> None: ...

    add.enqueue(1)
    app.close()
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, app.url], check=True, capture_output=True, text=True
    )
    (enqueue,) = spans.take()
    assert json.loads(ran.stdout) == [[trace_of(enqueue), enqueue.context.span_id]]
