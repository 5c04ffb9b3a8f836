"""Runs calls of a context on an event loop."""

import asyncio
import inspect
from contextlib import nullcontext, suppress
from typing import Any, TypeVar

from dueline.core.clock import SECOND_US
from dueline.core.errors import JobTimeout
from dueline.core.shared_calls import SharedCalls
from dueline.core.user_code import Raised
from dueline.durable.driving import Call, Deciding, Part, Pause, UserCall, run
from dueline.jobs.decisions import Decision

T = TypeVar("T")


async def adrive(call: Call[T], shared: SharedCalls[Decision, bool]) -> T:
    """Run a call; return its value. shared: writes what several functions record."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            part = call.send(answer) if error is None else call.throw(error)
        except StopIteration as end:
            value: T = end.value
            return value
        answer, error = None, None
        try:
            answer = await _run(part, shared)
        except BaseException as raised:  # noqa: BLE001  (the call decides what it means)
            error = raised


async def _run(part: Part, shared: SharedCalls[Decision, bool]) -> Any:  # noqa: ANN401  (of any type)
    if isinstance(part, Deciding):
        return await _whole(shared.put(lambda: part.decision))
    if isinstance(part, Pause):
        await asyncio.sleep(part.wait_us / SECOND_US)
        return None
    if not isinstance(part, UserCall) or not inspect.iscoroutinefunction(part.function):
        return await _in_thread(part)
    limit = None if part.timeout_us is None else asyncio.timeout(part.timeout_us / SECOND_US)
    try:
        async with limit or nullcontext():
            return await part.function(*part.args, **part.kwargs)
    except TimeoutError as error:
        if limit is not None and limit.expired():
            return Raised(JobTimeout("The step ran longer than its timeout."))
        return Raised(error)
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        return Raised(error)  # of the step's function, or of a cancelled task that it awaits


async def _in_thread(part: Part) -> Any:  # noqa: ANN401  (of any type)
    """Run a part in a thread."""
    work = asyncio.ensure_future(asyncio.to_thread(run, part))
    return await (asyncio.shield(work) if isinstance(part, UserCall) else _whole(work))


async def _whole(work: asyncio.Future[T]) -> T:
    """Wait for a call of the store; if this task is cancelled, wait for its end first."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        with suppress(BaseException):
            await asyncio.shield(work)
        raise
