"""Traces with OpenTelemetry: spans of calls and of runs, whose context travels with the job."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

from dueline.api.application import Dueline
from dueline.core.attempt import Failed, GivenBack, Parked
from dueline.core.errors import ConfigError, LeaseLost
from dueline.core.extras import extra
from dueline.core.version import VERSION
from dueline.durable.context import DurableContext
from dueline.durable.suspension import Suspended
from dueline.tasks.handler import Context
from dueline.tasks.hooks import StepCall
from dueline.tasks.raised import Cancel, Snooze

with extra("otel"):
    from opentelemetry import propagate, trace
    from opentelemetry.context.context import Context as AnyContext
    from opentelemetry.trace import (
        Link,
        NonRecordingSpan,
        Span,
        SpanContext,
        SpanKind,
        Status,
        StatusCode,
        TraceFlags,
        TracerProvider,
    )

# Names of the conventions for messaging, which are not stable yet: they stand here alone.
SYSTEM: Final = "messaging.system"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
QUEUE: Final = "messaging.destination.name"
JOB_ID: Final = "messaging.message.id"
BATCH: Final = "messaging.batch.message_count"
ERROR: Final = "error.type"
TASK: Final = "dueline.task"
ATTEMPT: Final = "dueline.attempt"
PRIORITY: Final = "dueline.priority"
LATENESS_MS: Final = "dueline.lateness_ms"
OUTCOME: Final = "dueline.outcome"
STEP: Final = "dueline.step"
POSITION: Final = "dueline.position"

_NOT_FAILURES = (Snooze, Cancel, LeaseLost)


def instrument(
    app: Dueline, *, provider: TracerProvider | None = None, new_traces: bool = False
) -> None:
    """Make spans of the calls and of the runs of an application.

    Each enqueue is a span `enqueue QUEUE`, and each attempt a span `process QUEUE`, also in child
    processes. The context travels in the headers of the job, as the global propagator writes it.
    All runs of a durable function are in one trace, and each attempt of a step is a span.

    Args:
        app: The application; call this once, where its module is imported.
        provider: The provider of tracers; by default the global one.
        new_traces: Begin a new trace with each attempt, linked to its enqueue, instead of
            continuing that of the enqueue. For jobs that run days later. A durable function has
            one for all of its runs.

    Raises:
        ConfigError: The application makes spans already.
    """
    if app.hooks.tracer is not None:
        raise ConfigError("This application makes spans already.", hint="Call instrument once.")
    tracer = trace.get_tracer("dueline", VERSION, provider)
    app.hooks.tracer = _Spans(tracer)

    @app.middleware
    @contextmanager
    def process(ctx: Context) -> Iterator[None]:
        parent = propagate.extract(ctx.headers)
        created = trace.get_current_span(parent).get_span_context()
        is_new = new_traces or not created.is_valid
        if is_new and isinstance(ctx, DurableContext):
            parent = _trace_of(tracer, ctx)
        elif new_traces:
            parent = AnyContext()
        with tracer.start_as_current_span(
            f"process {ctx.queue}",
            parent,
            SpanKind.CONSUMER,
            {
                SYSTEM: "dueline",
                OPERATION: "process",
                OPERATION_TYPE: "process",
                QUEUE: ctx.queue,
                JOB_ID: ctx.job_id.hex(),
                TASK: ctx.task,
                ATTEMPT: ctx.attempt,
                PRIORITY: ctx.priority,
                LATENESS_MS: max(0, round((datetime.now(UTC) - ctx.due).total_seconds() * 1000)),
            },
            [Link(created)] if created.is_valid else (),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except _NOT_FAILURES as asked:
                span.set_attribute(OUTCOME, type(asked).__name__.lower())
                raise
            except Suspended as suspended:
                _suspend(span, suspended)
                raise
            except BaseException as error:
                _fail(span, error)
                raise


class _Spans:
    """Spans of calls that are stored, and of steps that run."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    def enqueue(self, queue: str, task: str, count: int) -> "_Enqueue":
        """Start a span."""
        attributes: dict[str, str | int] = {
            SYSTEM: "dueline",
            OPERATION: "enqueue",
            OPERATION_TYPE: "send",
            QUEUE: queue,
            TASK: task,
        }
        if count > 1:
            attributes[BATCH] = count
        return _Enqueue(
            self._tracer.start_span(
                f"enqueue {queue}", kind=SpanKind.PRODUCER, attributes=attributes
            )
        )

    @contextmanager
    def step(self, call: StepCall) -> Iterator["_Step"]:
        """Make the current span while a step runs."""
        attributes: dict[str, str | int] = {
            JOB_ID: call.job_id, TASK: call.task, STEP: call.name, POSITION: call.position,
            ATTEMPT: call.attempt,
        }  # fmt: skip
        with self._tracer.start_as_current_span(
            f"{call.kind} {call.name}",
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield _Step(span)


class _Step:
    """The span of a step that runs."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def fail(self, error: BaseException) -> None:
        """Note that the step raised."""
        _fail(self._span, error)


class _Enqueue:
    """The span of calls that are being stored."""

    def __init__(self, span: Span) -> None:
        self._span = span
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        self.headers: Mapping[str, str] = carrier

    def end(self, job_ids: Sequence[str], error: BaseException | None) -> None:
        """End the span."""
        if len(job_ids) == 1:
            self._span.set_attribute(JOB_ID, job_ids[0])
        if error is not None:
            _fail(self._span, error)
        self._span.end()


def _trace_of(tracer: trace.Tracer, ctx: Context) -> AnyContext:
    """Return the trace of a durable function that continues none; its root is derived from the job.

    Whether it is sampled is asked as for a new trace: samplers decide by its id.
    """
    digest = sha256(ctx.job_id).digest()  # the id itself has fixed bits, where samplers read
    trace_id, span_id = int.from_bytes(digest[:16]), int.from_bytes(digest[16:24])
    sampler, is_sampled = getattr(tracer, "sampler", None), True  # of the SDK
    if sampler is not None:
        decision = sampler.should_sample(None, trace_id, f"process {ctx.queue}", SpanKind.CONSUMER)
        is_sampled = decision.decision.is_sampled()
    flags = TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT)
    root = SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)
    return trace.set_span_in_context(NonRecordingSpan(root), AnyContext())


def _suspend(span: Span, suspended: Suspended) -> None:
    """Note how the run of a durable function ended; its waits and releases are no errors."""
    match suspended.ending:
        case Parked(error=error, word="stopped" | "retried" as word):
            span.set_attribute(OUTCOME, word)
            span.set_status(Status(StatusCode.ERROR, error))
        case Parked(word=word):
            span.set_attribute(OUTCOME, word)
        case Failed(error_type=kind, message=text):
            span.set_attribute(ERROR, kind)
            span.set_status(Status(StatusCode.ERROR, text))
        case GivenBack():
            span.set_attribute(OUTCOME, "given_back")
        case ending:
            span.set_attribute(OUTCOME, type(ending).__name__.lower())


def _fail(span: Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_attribute(ERROR, type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR, str(error)))
