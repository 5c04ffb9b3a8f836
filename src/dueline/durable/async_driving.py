"""Runs calls of a context on an event loop."""

import asyncio
import inspect
from contextlib import suppress
from typing import Any, TypeVar

from dueline.core.clock import SECOND_US
from dueline.core.errors import JobTimeout
from dueline.core.user_code import Raised
from dueline.durable.driving import Call, Part, Pause, UserCall, run

T = TypeVar("T")


async def adrive(call: Call[T]) -> T:
    """Run a call; return its value."""
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
            answer = await _run(part)
        except BaseException as raised:  # noqa: BLE001  (the call decides what it means)
            error = raised


async def _run(part: Part) -> Any:  # noqa: ANN401  (of any type)
    if isinstance(part, Pause):
        await asyncio.sleep(part.wait_us / SECOND_US)
        return None
    if not isinstance(part, UserCall) or not inspect.iscoroutinefunction(part.function):
        return await _in_thread(part)
    limit = asyncio.timeout(None if part.timeout_us is None else part.timeout_us / SECOND_US)
    try:
        async with limit:
            return await part.function(*part.args, **part.kwargs)
    except TimeoutError as error:
        if limit.expired():
            return Raised(JobTimeout("The step ran longer than its timeout."))
        return Raised(error)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001  (of the step's function)
        return Raised(error)


async def _in_thread(part: Part) -> Any:  # noqa: ANN401  (of any type)
    """Run a part in a thread; if this task is cancelled, wait for a call of the store to end."""
    work = asyncio.ensure_future(asyncio.to_thread(run, part))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if not isinstance(part, UserCall):
            with suppress(BaseException):
                await asyncio.shield(work)
        raise
