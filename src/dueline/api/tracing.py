"""Calls that are stored within spans, whose context travels with the jobs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

from dueline.core.call_options import HEADERS_CHARACTERS_MAX, read_options
from dueline.core.job import Job
from dueline.jobs.queue import EnqueueRequest
from dueline.tasks.hooks import EnqueueSpan, Tracer
from dueline.workflows.graph import LaidOut
from dueline.workflows.workflow import Start

Headers = tuple[tuple[str, str], ...]


def traced(
    tracer: Tracer | None,
    requests: Sequence[EnqueueRequest],
    store: Callable[[Sequence[EnqueueRequest]], Sequence[Job]],
) -> Sequence[Job]:
    """Store requests, each in a span if there is a tracer; return their rows."""
    if tracer is None:
        return store(requests)
    spans = [
        tracer.enqueue(request.queue, request.task, len(request.bodies)) for request in requests
    ]
    with _ended(spans) as ids:
        rows = store([_with_headers(*one) for one in zip(requests, spans, strict=True)])
        rest = iter(rows)
        for one, some in zip(requests, ids, strict=True):
            some += [row.id.hex() for row in islice(rest, len(one.bodies))]
    return rows


def traced_start(
    tracer: Tracer | None, laid_out: LaidOut, store: Callable[[LaidOut], Start]
) -> Start:
    """Store a workflow, in one span if there is a tracer and it has tasks."""
    calls = [call for call in laid_out.calls if call is not None]
    if tracer is None or not calls:
        return store(laid_out)
    span = tracer.enqueue(calls[0].queue, calls[0].task, len(calls))
    with _ended([span]) as (ids,):
        traced_calls = [
            call and call.changed(headers=_added(call.headers, span)) for call in laid_out.calls
        ]
        start = store(laid_out._replace(calls=traced_calls))
        ids += [job.id.hex() for job in start.jobs]
    return start


@contextmanager
def _ended(spans: Sequence[EnqueueSpan]) -> Iterator[list[list[str]]]:
    """End spans after the block: each with the ids that it puts into its list, or its error."""
    ids: list[list[str]] = [[] for _ in spans]
    error: BaseException | None = None
    try:
        yield ids
    except BaseException as raised:
        error = raised
        raise
    finally:
        for span, some in zip(spans, ids, strict=True):
            span.end(some, error)


def _with_headers(request: EnqueueRequest, span: EnqueueSpan) -> EnqueueRequest:
    """Add the trace context to the headers of calls."""
    options = read_options(request.opts)
    headers = _added(options.headers, span)
    if headers == options.headers:
        return request
    return request._replace(opts=options.changed(headers=headers).to_bytes())


def _added(headers: Headers, span: EnqueueSpan) -> Headers:
    """Return headers with the trace context; one that is too long is left out."""
    length = sum(len(name) + len(value) for name, value in span.headers.items())
    if not 0 < length <= HEADERS_CHARACTERS_MAX:
        return headers
    return tuple(sorted({**dict(headers), **span.headers}.items()))
