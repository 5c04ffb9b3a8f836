"""Calls that are stored within spans, whose context travels with the jobs."""

from collections.abc import Callable, Sequence

from dueline.core.call_options import HEADERS_CHARACTERS_MAX, read_options
from dueline.core.job import Job
from dueline.jobs.queue import EnqueueRequest
from dueline.tasks.hooks import EnqueueSpan, Tracer


def traced(
    tracer: Tracer | None,
    requests: Sequence[EnqueueRequest],
    store: Callable[[Sequence[EnqueueRequest]], Sequence[Job]],
) -> Sequence[Job]:
    """Store requests, each in a span if there is a tracer; return their rows."""
    if tracer is None:
        return store(requests)
    spans = [tracer.enqueue(one.queue, one.task, len(one.bodies)) for one in requests]
    error: BaseException | None = None
    rows: Sequence[Job] = ()
    try:
        rows = store([_with_headers(*one) for one in zip(requests, spans, strict=True)])
    except BaseException as raised:
        error = raised
        raise
    finally:
        first = 0
        for one, span in zip(requests, spans, strict=True):
            some = rows[first : first + len(one.bodies)]
            first += len(one.bodies)
            span.end([row.id.hex() for row in some], error)
    return rows


def _with_headers(request: EnqueueRequest, span: EnqueueSpan) -> EnqueueRequest:
    """Add the trace context to the headers of calls; one that is too long is left out."""
    length = sum(len(name) + len(value) for name, value in span.headers.items())
    if not 0 < length <= HEADERS_CHARACTERS_MAX:
        return request
    options = read_options(request.opts)
    headers = tuple(sorted({**dict(options.headers), **span.headers}.items()))
    return request._replace(opts=options.changed(headers=headers).to_bytes())
