"""What watches calls and durable functions: spans for traces, counts for metrics."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from dueline.core.call_options import HEADERS_CHARACTERS_MAX
from dueline.core.job import Job
from dueline.tasks.hooks import EnqueueSpan, Hooks, StepCall, StepSpan

Headers = tuple[tuple[str, str], ...]

_COUNTED: Final = frozenset({"step", "undo"})


class FunctionCounts(Protocol):
    """Counts what durable functions did."""

    def replayed(self, job: Job, took_us: int) -> None:
        """Count a run, with the time until it reached what was not recorded."""
        ...

    def step(self, job: Job, kind: str, outcome: str) -> None:
        """Count the end of a step or compensation, or an attempt that is retried."""
        ...


class _NoSpan:
    def fail(self, error: BaseException) -> None:
        """Do nothing."""


_NO_SPAN: Final = _NoSpan()


class FunctionWatch:
    """Watches the durable functions of a worker.

    Args:
      hooks: Of the application; their tracer makes the spans.

    Attributes:
      counts: Counts for metrics; None without metrics.
    """

    def __init__(self, hooks: Hooks | None = None) -> None:
        self._hooks = hooks or Hooks()
        self.counts: FunctionCounts | None = None

    @contextmanager
    def step(self, call: StepCall) -> Iterator[StepSpan]:
        """Make the span of an attempt of a step, which runs meanwhile."""
        tracer = self._hooks.tracer
        if tracer is None:
            yield _NO_SPAN
        else:
            with tracer.step(call) as span:
                yield span

    def ended(self, job: Job, kind: str, outcome: str) -> None:
        """Count the record of a call, if it is that of a step or compensation."""
        if self.counts is not None and kind in _COUNTED:
            self.counts.step(job, kind, outcome)

    def replayed(self, job: Job, took_us: int) -> None:
        """Count a run, with the time until it reached what was not recorded."""
        if self.counts is not None:
            self.counts.replayed(job, took_us)

    @contextmanager
    def call(self, queue: str, task: str, headers: Headers) -> Iterator[tuple[Headers, list[str]]]:
        """Make the span of a call meanwhile.

        Yields:
            The headers with the trace context, and a list that takes the id of the job.
        """
        tracer = self._hooks.tracer
        if tracer is None:
            yield headers, []
            return
        span = tracer.enqueue(queue, task, 1)
        with ended_together([span]) as (ids,):
            yield with_trace(headers, span), ids


@contextmanager
def ended_together(spans: Sequence[EnqueueSpan]) -> Iterator[list[list[str]]]:
    """End spans after the block: each with the ids that it puts into its list, or its error."""
    ids: list[list[str]] = [[] for _ in spans]
    error: BaseException | None = None
    try:
        yield ids
    except BaseException as raised:
        error = raised
        raise
    finally:
        for span, job_ids in zip(spans, ids, strict=True):
            span.end(job_ids, error)


def with_trace(headers: Headers, span: EnqueueSpan) -> Headers:
    """Return headers with the trace context; one that is too long is left out."""
    length = sum(len(name) + len(value) for name, value in span.headers.items())
    if not 0 < length <= HEADERS_CHARACTERS_MAX:
        return headers
    return tuple(sorted({**dict(headers), **span.headers}.items()))
