"""Requests are answered although the disk of the store does not answer.

The thread of such a request stays until the disk answers. There are few: once a call is overdue,
later requests get no thread.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.types import Message, Send

from dueline.core.errors import StoreUnavailable

CHECK_S: Final = 0.25

Silence = Callable[[], StoreUnavailable | None]
"""Returns the error of a disk that does not answer; None if it does."""


async def answer_in_time(
    respond: Callable[[Send], Awaitable[None]],
    send: Send,
    silence: Silence,
    refuse: Callable[[StoreUnavailable], Awaitable[None]],
) -> None:
    """Respond to a request; refuse it when the disk does not answer before the response begins.

    Args:
        respond: Sends the response.
        send: Sends a part of it to the client.
        silence: Whether the disk answers.
        refuse: Sends the response that says that it does not.
    """
    has_begun = False

    async def note(message: Message) -> None:
        nonlocal has_begun
        has_begun = True
        await send(message)

    async def run() -> None:
        await respond(note)

    task = asyncio.create_task(run())
    try:
        while not (await asyncio.wait([task], timeout=CHECK_S))[0]:
            error = None if has_begun else silence()
            if error is not None:
                break
        else:
            await task
            return
    finally:
        task.cancel()  # without a wait: its thread may be the one that waits for the disk
    await refuse(error)
