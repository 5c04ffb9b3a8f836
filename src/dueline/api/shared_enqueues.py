"""Calls that coroutines enqueue at the same moment share a thread and a write."""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Final, NamedTuple

from dueline.core.job import Job
from dueline.jobs.queue import EnqueueRequest, Queues

CALLS_MAX: Final = 500
"""Maximum number of calls in one write."""

THREADS: Final = 2
"""Number of threads that write at once: one that hangs holds up nobody who comes later."""

Prepare = Callable[[], EnqueueRequest]
Answer = Job | BaseException


class _Call(NamedTuple):
    """A call of a coroutine, which waits for its future."""

    prepare: Prepare
    context: Context
    future: asyncio.Future[Job]

    def answer(self, answer: Answer) -> None:
        """Give the coroutine its answer, in its loop."""
        if self.future.done():  # cancelled meanwhile
            return
        if isinstance(answer, BaseException):
            self.future.set_exception(answer)
        else:
            self.future.set_result(answer)


class SharedEnqueues:
    """Enqueues the calls of coroutines of this process, in threads of their loops.

    A call begins a thread while fewer than THREADS write; the others are taken by these. No call
    waits for company.

    Args:
        queues: The queues.
    """

    def __init__(self, queues: Callable[[], Queues]) -> None:
        self._queues = queues
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._waiting: deque[_Call] = deque()
        self._writing = 0
        self._guard = threading.Lock()

    async def put(self, prepare: Prepare) -> Job:
        """Enqueue one call; `prepare` returns its request, in a thread."""
        if self._process != os.getpid():  # the threads of the parent process are not in this one
            self._begin()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Job] = loop.create_future()
        self._waiting.append(_Call(prepare, copy_context(), future))
        with self._guard:
            begins = self._writing < THREADS
            self._writing += begins
        if begins:
            try:
                loop.run_in_executor(None, self._work)
            except BaseException:  # the loop is closing
                with self._guard:
                    self._writing -= 1
                raise
        return await future

    def _work(self) -> None:
        """Write what waits until nothing does."""
        while calls := self._take():
            try:
                answers = self._answers(calls)
            except BaseException as error:  # noqa: BLE001  (raised in the coroutines)
                answers = [error] * len(calls)
            for call, answer in zip(calls, answers, strict=True):
                with suppress(RuntimeError):  # its loop is closed
                    call.future.get_loop().call_soon_threadsafe(call.answer, answer)

    def _take(self) -> list[_Call]:
        """Take what waits, except for cancelled calls; without any, this thread has ended."""
        with self._guard:
            calls: list[_Call] = []
            while self._waiting and len(calls) < CALLS_MAX:
                call = self._waiting.popleft()
                if not call.future.cancelled():
                    calls.append(call)
            self._writing -= not calls
        return calls

    def _answers(self, calls: Sequence[_Call]) -> Sequence[Answer]:
        requests: list[EnqueueRequest | Exception] = []
        for call in calls:
            try:
                requests.append(call.context.run(call.prepare))
            except Exception as error:  # noqa: BLE001  (raised in its coroutine)
                requests.append(error)
        good = [request for request in requests if isinstance(request, EnqueueRequest)]
        stored = iter(self._queues().enqueue_each(good))
        return [
            next(stored) if isinstance(request, EnqueueRequest) else request for request in requests
        ]
