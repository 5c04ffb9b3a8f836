"""Calls that are stored within spans, whose context travels with the jobs."""

from collections.abc import Callable, Sequence
from itertools import islice

from dueline.core.call_options import read_options
from dueline.core.job import Job
from dueline.jobs.queue import EnqueueRequest
from dueline.tasks.hooks import EnqueueSpan, Tracer
from dueline.tasks.watching import ended_together, with_trace
from dueline.workflows.graph import LaidOut
from dueline.workflows.workflow import Start


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
    with ended_together(spans) as ids:
        rows = store(list(map(_with_headers, requests, spans)))
        rest = iter(rows)
        for request, job_ids in zip(requests, ids, strict=True):
            job_ids += [row.id.hex() for row in islice(rest, len(request.bodies))]
    return rows


def traced_start(
    tracer: Tracer | None, laid_out: LaidOut, store: Callable[[LaidOut], Start]
) -> Start:
    """Store a workflow, in one span if there is a tracer and it has tasks."""
    calls = [call for call in laid_out.calls if call is not None]
    if tracer is None or not calls:
        return store(laid_out)
    span = tracer.enqueue(calls[0].queue, calls[0].task, len(calls))
    with ended_together([span]) as (ids,):
        traced_calls = [
            call and call.changed(headers=with_trace(call.headers, span)) for call in laid_out.calls
        ]
        start = store(laid_out._replace(calls=traced_calls))
        ids += [job.id.hex() for job in start.jobs]
    return start


def _with_headers(request: EnqueueRequest, span: EnqueueSpan) -> EnqueueRequest:
    """Add the trace context to the headers of calls."""
    options = read_options(request.opts)
    headers = with_trace(options.headers, span)
    if headers == options.headers:
        return request
    return request._replace(opts=options.changed(headers=headers).to_bytes())
