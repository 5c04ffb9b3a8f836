"""Calls: jobs of other tasks that a durable function makes, and whose ends it waits for.

A call has two positions: the record of the first holds the job's row and decides the insert
(rule D4), the record of the second holds how the job ended, as the function is given it (rule D9).
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from dueline.core.attempt import CallPlace, Outcome
from dueline.core.blobs import Blobs, whole
from dueline.core.call_options import call_of, read_options
from dueline.core.clock import SECOND_US
from dueline.core.codec import AS_JSON, decode, encode
from dueline.core.errors import BadInput, QuotaExceeded
from dueline.core.job import Job, JobId
from dueline.durable.activation import Activation
from dueline.durable.driving import Part
from dueline.durable.errors import CallFailed
from dueline.durable.log import Head, number_of
from dueline.durable.waits import check_us
from dueline.jobs.called_jobs import end_of
from dueline.jobs.queue import EnqueueRequest

DEPTH_MAX: Final = 100
"""Maximum number of functions that call each other."""

NO_ROOM_US: Final = 10 * SECOND_US
"""How long a function waits whose call has no room in a quota."""


class ChildCall(NamedTuple):
    """A call of a task whose arguments are encoded.

    task: its name. request: makes the request, with times that count from now. kind: annotation of
    the result.
    """

    task: str
    request: Callable[[], EnqueueRequest]
    kind: Any


class Planned(Protocol):
    """A call of a task with its options."""

    def child(self) -> ChildCall:
        """Encode the arguments.

        Raises: BadInput: they do not fit, or an option does not apply.
        """
        ...


class CallableTask(Protocol):
    """A task with options for its calls."""

    def call(self, *args: Any, **kwargs: Any) -> Planned:  # noqa: ANN401
        """Return a call."""
        ...


class Called(NamedTuple):
    """A call whose job is stored.

    key: its position. task: name of the task. kind: annotation of the result. job_id: of the job.
    since_us: when the call was recorded.
    """

    key: str
    task: str
    kind: Any
    job_id: JobId
    since_us: int


def child_of(task: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ChildCall:
    """Return the call of a task; raise BadInput for anything else."""
    if not callable(getattr(task, "call", None)):
        raise BadInput(
            f"{task!r:.80} is not a task.", hint="Call plain functions with ctx.step(function)."
        )
    return planned(task.call(*args, **kwargs))  # type: ignore[attr-defined]  # see above


def planned(call: object) -> ChildCall:
    """Encode a planned call; raise BadInput for anything else."""
    if not callable(getattr(call, "child", None)):
        raise BadInput(f"{call!r:.80} is not a call of a task.", hint="Use task.call(...).")
    child: ChildCall = call.child()  # type: ignore[attr-defined]  # see above
    return child


def place_of(run: Activation, key: str, calls: int = 0) -> CallPlace:
    """Return the place of a call, as its job and its end name it.

    Raises: BadInput: functions call each other too deeply.
    """
    above = call_of(run.job)
    depth = 1 if above is None else above.depth + 1
    if depth > DEPTH_MAX:
        raise BadInput(
            f"The function {run.job.task} is called through {DEPTH_MAX} others, and cannot call "
            "another one.",
            hint="Restart a long loop with ctx.restart_with(...) instead of a call of itself.",
        )
    return CallPlace(run.job.id, run.log.generation_of(key), key, 0, calls, depth)


def rows_of(run: Activation, calls: Sequence[tuple[ChildCall, CallPlace, str]]) -> list[Job]:
    """Return the rows of calls, each with a limit of its own or none.

    Raises: BadInput: an option is out of range.
    """
    rows: list[Job] = []
    for call, place, limit in calls:
        request = call.request()
        options = read_options(request.opts)
        limits = request.limits
        if limit:
            limits = [(*(limits[0] if limits else ()), limit)]
        with run.watch.call(request.queue, request.task, options.headers) as (headers, ids):
            opts = options.changed(called_by=place, headers=headers).to_bytes()
            request = request._replace(opts=opts, limits=limits, wait_us=0)
            rows += run.handler.queues().rows(request)
            ids.append(rows[-1].id.hex())
    return rows


def made(
    run: Activation, calls: Sequence[tuple[ChildCall, CallPlace, str]]
) -> Generator[Part, Any, list[Job]]:
    """Make the rows of calls; if a quota has no room, the function waits."""
    run.check()
    try:
        return (yield from run.blocking(partial(rows_of, run, calls)))
    except QuotaExceeded as error:
        at_us = run.engine.time.latest_us() + NO_ROOM_US
        run.park(at_us, error=error.message)


def is_sure(run: Activation, key: str) -> bool:
    """Return whether the jobs of a recorded call are known to be stored (rule D4)."""
    number = number_of(key)
    return number < run.log.last or number <= run.place.stored


def call(run: Activation, key: str, child: ChildCall) -> Generator[Part, Any, Called]:
    """Record a call and insert its job."""
    place = place_of(run, key)
    entry = yield from run.replayed(key, "call", child.task)
    if entry is None:
        rows = yield from made(run, [(child, place, "")])
        head = Head("call", child.task, source=rows[0].id.hex())
        entry = yield from run.write(key, head, encode(rows), jobs=rows)
    elif not is_sure(run, key) and (yield from _end_of(run, place)) is None:
        rows = decode(entry.value, list[Job])
        yield from run.blocking(partial(run.log.insert_again, rows))
    job_id = JobId(bytes.fromhex(entry.head.source))
    return Called(key, child.task, child.kind, job_id, entry.head.at_us)


def result(run: Activation, key: str, called: Called) -> Generator[Part, Any, Any]:
    """Wait for the end of a call; return its result, as it is recorded."""
    entry = yield from run.replayed(key, "result", called.task)
    if entry is None:
        place = place_of(run, called.key)
        outcome = yield from _end_of(run, place)
        if outcome is None:
            wait_us = check_us(run.engine.time.latest_us() - called.since_us)
            run.park(run.engine.time.latest_us() + wait_us, call=place)
        value = value_of(run.engine.blobs, outcome)
        stored = run.handler.write_value(value, called.task, job=run.job)
        head = Head("result", called.task, outcome.state, codec=stored.codec)
        head = head.changed(source=called.job_id.hex())
        entry = yield from run.write(key, head, stored.data)
    value = read(run, entry.head.codec, entry.value, called, entry.head.state)
    if isinstance(value, CallFailed):
        raise run.report(value)
    return value


def value_of(blobs: Blobs | None, outcome: Outcome) -> Any:  # noqa: ANN401  (plain JSON)
    """Return what is recorded of an end: the result, or the error."""
    if outcome.state != "done":
        return outcome.error
    return AS_JSON.decoder(Any)(whole(blobs, outcome.value).encode()) if outcome.value else None


def read(run: Activation, codec: int, data: bytes, called: Called, state: str) -> Any:  # noqa: ANN401
    """Return a recorded result, or the CallFailed of a call that did not end well."""
    try:
        value = run.handler.read_value(codec, data, called.kind if state == "done" else str)
    except ValueError as error:
        run.stop(f"the result of the call of {called.task} does not fit: {error}")
    return value if state == "done" else CallFailed(called.task, called.job_id, state, value)


def _end_of(run: Activation, place: CallPlace) -> Generator[Part, Any, Outcome | None]:
    return (yield from run.blocking(partial(end_of, run.engine.store, place)))
