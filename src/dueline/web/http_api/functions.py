"""Durable functions: state, steps, signals, resets and forks.

`POST /jobs` starts one; `/jobs/{id}/cancel`, `/retry` and `/result` are for functions, too.
"""

from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from dueline.admin.functions import FunctionSummary, readable_value, shown_state, state_of
from dueline.admin.job_views import CALLS_SHOWN
from dueline.api.job_handle import parse_id
from dueline.core.codec import RESULT_BYTES_MAX, encode_result
from dueline.core.errors import NotFound
from dueline.durable.sending import Sending, send_json
from dueline.durable.values import StoredValue
from dueline.durable.views import RecordedCall
from dueline.web.http_api.frame import KEY_HEADER, Call, Input, operation
from dueline.web.http_api.shapes import Done, time_of

SIGNAL_BYTES_MAX: Final = RESULT_BYTES_MAX + 4096
PAGE_MAX: Final = 500

Position = Annotated[int, Meta(ge=0, le=10_000)]
Label = Annotated[str, Meta(min_length=1, max_length=200)]


class Function(msgspec.Struct):
    """A durable function in a list. state: of its job; sleeping, waiting or stopped while it is.

    awaits: the name of the signal or task that it waits for; until: when the wait ends.
    """

    id: str
    task: str
    state: str
    started: datetime | None
    awaits: str
    until: datetime | None


class FunctionList(msgspec.Struct):
    """A page of functions. next: pass it as `cursor` to read on; null at the end."""

    functions: list[Function]
    next: int | None


class FunctionQuery(Input):
    """Which functions. name: a part of the name of the task."""

    state: str | None = None
    name: str = ""
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = 50
    cursor: Annotated[int, Meta(ge=0)] = 0


class FunctionDetails(msgspec.Struct):
    """A durable function. state: as in the list. sentence: why it is not running.

    value: what it set with `ctx.state`; hidden: why that is not shown. ends_as: how it ends, while
    its compensations run. unread_signals: their numbers by name. last_step: of its log. stopped:
    why no worker can continue it. parent: the function that called it.
    """

    id: str
    task: str
    state: str
    sentence: str
    value: Any
    hidden: str
    stopped: str
    ends_as: str
    is_cancelled: bool
    unread_signals: dict[str, int]
    generation: int
    last_step: int
    started: datetime | None
    ended: datetime | None
    error: str
    parent: str


class Step(msgspec.Struct):
    """A recorded call of a function. kind: step, sleep, signal, call, result, gather and others.

    began: when it began, as far as is known; attempts: of a step. value: what a call that is done
    returned; hidden: why that is not shown. until: when a wait ends. job: that was called.
    """

    position: int
    kind: str
    name: str
    state: str
    began: datetime | None
    at: datetime | None
    until: datetime | None
    attempts: int
    value: Any
    hidden: str
    error: str
    job: str


class StepList(msgspec.Struct):
    """Some steps, in their order. next: pass it as `after` to read on; null at the end."""

    steps: list[Step]
    next: int | None


class StepQuery(Input):
    """The steps after this position."""

    after: Position = 0
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = CALLS_SHOWN


class Signal(Input):
    """A signal. id: a repeat with the same id is the same signal; or send an Idempotency-Key."""

    name: Label
    value: Any = None
    id: Label | None = None


class LastStep(Input):
    """The last step whose record is kept; 0 for none, null for all."""

    to: Position | None = None


class Forked(msgspec.Struct):
    """The new job."""

    id: str


@operation("GET", "/functions", role="reader")
def list_functions(call: Call, query: FunctionQuery) -> FunctionList:
    """List the durable functions that have begun, the newest first."""
    page = call.site.admin.functions(
        limit=query.limit, after=query.cursor, state=query.state, name=query.name
    )
    return FunctionList(list(map(_function, page.functions)), page.next)


def _function(function: FunctionSummary) -> Function:
    awaited = function.awaited
    return Function(
        function.id.hex(), function.task, function.state, time_of(function.started_us),
        "" if awaited is None else awaited.name,
        None if awaited is None else time_of(awaited.until_us),
    )  # fmt: skip


@operation("GET", "/functions/{id}", role=("reader", "producer"))
def get_function(call: Call) -> FunctionDetails:
    """Return the state of a durable function, and why it is not running."""
    site = call.site
    details = site.admin.function(call.path["id"], most=1)
    job, view = details.summary, details.function
    assert view is not None
    value, hidden = _shown(call, "state", state_of(site.admin.engine, parse_id(job.id)))
    return FunctionDetails(
        id=job.id,
        task=job.task,
        state=shown_state(details),
        sentence="" if job.state == "done" else site.admin.explain(job.id).sentence,
        value=value,
        hidden=hidden,
        stopped="" if view.stop is None else view.stop.why,
        ends_as=view.end,
        is_cancelled=view.is_cancelled,
        unread_signals=dict(view.unread or {}),
        generation=view.generation,
        last_step=view.total,
        started=time_of(job.enqueued_us),
        ended=time_of(job.ended_us),
        error=job.error,
        parent=view.parent,
    )


@operation("GET", "/functions/{id}/steps", role=("reader", "producer"))
def list_steps(call: Call, query: StepQuery) -> StepList:
    """List what a durable function has recorded, a page at a time.

    Large values are left out: `hidden` says so, and `/functions/{id}/steps/{position}` returns
    them. A compensation has the kind `undo` and the position of its step.
    """
    last = query.after + query.limit
    details = call.site.admin.function(call.path["id"], to=last, most=query.limit)
    view = details.function
    assert view is not None
    steps = [_step(call, each) for each in view.calls if int(each.position) > query.after]
    return StepList(steps, last if last < view.total else None)


@operation("GET", "/functions/{id}/steps/{position}", role=("reader", "producer"))
def get_step(call: Call) -> Step:
    """Return one step with its value, also if it is large; of a failed step the whole error."""
    text = call.path["position"]
    if not (text.isascii() and text.isdecimal() and len(text) < 10):  # noqa: PLR2004
        raise NotFound(f"The function {call.path['id']:.80} has no call {text:.80}.")
    whole = call.site.admin.call(call.path["id"], int(text))
    return _step(call, whole.call, whole.stored)


def _step(call: Call, recorded: RecordedCall, whole: StoredValue | None = None) -> Step:
    value, hidden = _shown(call, recorded.name, whole or recorded.value)
    if recorded.is_apart and whole is None:
        hidden = "large"
    is_step = recorded.kind in ("step", "undo")
    return Step(
        int(recorded.position), recorded.kind, recorded.name, recorded.state,
        time_of(recorded.began_us), time_of(recorded.at_us), time_of(recorded.until_us),
        recorded.tries + (not recorded.is_open) if is_step else 0, value, hidden, recorded.error,
        recorded.job,
    )  # fmt: skip


def _shown(call: Call, name: str, stored: StoredValue | None) -> tuple[Any, str]:
    """Return a value without secrets, or why it is not shown."""
    if stored is None:
        return None, ""
    value, hidden = readable_value(stored)
    return call.site.redaction.named(name, value), hidden


@operation(
    "POST", "/functions/{id}/signals", role="producer", bytes_max=SIGNAL_BYTES_MAX, is_keyed=True
)
def send_signal(call: Call, body: Signal) -> Done:
    """Send a signal to a durable function, which takes it with `ctx.wait_signal`.

    A signal that is not awaited yet is kept. One with the id or the Idempotency-Key of an earlier
    signal of this name changes nothing.
    """
    value = encode_result(body.value, f"the signal {body.name}")
    sent = Sending(body.name, value, body.id or call.request.headers.get(KEY_HEADER))
    job_id, tasks = parse_id(call.path["id"]), call.site.producer.tasks
    if call.identity.may("operator"):
        call.operations().signal(job_id, sent, tasks)
    else:
        send_json(call.site.app.queues, job_id, sent, tasks)
    return Done()


@operation("POST", "/functions/{id}/reset", role="operator")
def reset_function(call: Call, body: LastStep) -> Done:
    """Continue a waiting, stopped or dead durable function after a step.

    Refused while it runs, and after its compensations ran. No record is deleted.
    """
    call.operations().reset(parse_id(call.path["id"]), body.to)
    return Done()


@operation("POST", "/functions/{id}/fork", role="operator", status=201, is_keyed=True)
def fork_function(call: Call, body: LastStep) -> Forked:
    """Begin a new function with the records up to a step; the other one is left as it is.

    Each request begins another one, unless it has the Idempotency-Key of an earlier one.
    """
    job_id, change = parse_id(call.path["id"]), call.operations()
    return Forked(call.once(lambda: change.fork(job_id, body.to).hex()))


OPERATIONS = (
    list_functions, get_function, list_steps, get_step, send_signal, reset_function, fork_function,
)  # fmt: skip
