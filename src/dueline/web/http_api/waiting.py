"""Requests that wait for something, for a bounded time."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Final, TypeVar

from msgspec import Meta
from starlette.requests import Request

from dueline.web.security import Refusal

WAIT_S_MAX: Final = 30
WAITING_MAX: Final = 100
"""Maximum number of requests that wait at the same time in one process."""

_FIRST_S: Final = 0.02
_LAST_S: Final = 0.25
_GROWTH: Final = 1.5

Wait = Annotated[float, Meta(ge=0, le=WAIT_S_MAX, description="Maximum wait in seconds.")]

T = TypeVar("T")


class _Waiting:
    """Counts the requests that wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Count a request while it waits.

        Raises: Refusal: too many wait.
        """
        with self._lock:
            if self._count >= WAITING_MAX:
                raise Refusal(429, f"{WAITING_MAX} requests wait already.")
            self._count += 1
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1


waiting: Final = _Waiting()


async def poll(
    request: Request, read: Callable[[], Awaitable[T | None]], wait_s: float
) -> T | None:
    """Repeat a read until it returns something, the client leaves, or the wait is over.

    Args:
        request: The request: it ends if its client leaves.
        read: Reads once.
        wait_s: Maximum wait in seconds.

    Raises:
        Refusal: Too many requests wait.
    """
    answer = await read()
    if answer is not None or not wait_s:
        return answer
    loop = asyncio.get_running_loop()
    end_s, step_s = loop.time() + wait_s, _FIRST_S
    with waiting.one_more():
        while (left_s := end_s - loop.time()) > 0:
            await asyncio.sleep(min(step_s, left_s))
            step_s = min(_LAST_S, step_s * _GROWTH)
            if await request.is_disconnected():
                return None
            answer = await read()
            if answer is not None:
                return answer
    return None
