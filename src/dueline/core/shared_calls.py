"""Calls that coroutines make at the same moment share a thread and a write."""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any, Final, Generic, NamedTuple, TypeVar

CALLS_MAX: Final = 500
"""Maximum number of calls in one write."""

THREADS: Final = 2
"""Number of threads that write at once: one that hangs holds up nobody who comes later."""

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class _Call(NamedTuple):
    """A call of a coroutine, which waits for its future."""

    prepare: Callable[[], Any]
    context: Context
    future: asyncio.Future[Any]

    def answer(self, answer: object) -> None:
        """Give the coroutine its answer, in its loop."""
        if self.future.done():  # cancelled meanwhile
            return
        if isinstance(answer, BaseException):
            self.future.set_exception(answer)
        else:
            self.future.set_result(answer)


def _answer(loop: asyncio.AbstractEventLoop, answered: Sequence[tuple[_Call, object]]) -> None:
    """Give the coroutines of a loop their answers: one call wakes the loop for all of them."""
    for call, answer in answered:
        if call.future.get_loop() is loop:
            call.answer(answer)


class SharedCalls(Generic[Request, Answer]):
    """Makes the calls of coroutines of this process, in threads of their loops.

    A call begins a thread while fewer than THREADS write; the others are taken by these. No call
    waits for company.

    Args:
        make: Makes calls together; returns what each of them returns, or the error it raises. An
            error that it raises itself is that of all.
    """

    def __init__(
        self, make: Callable[[Sequence[Request]], Sequence[Answer | BaseException]]
    ) -> None:
        self._make = make
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._waiting: deque[_Call] = deque()
        self._writing = 0
        self._guard = threading.Lock()

    def put(self, prepare: Callable[[], Request]) -> asyncio.Future[Answer]:
        """Begin one call; `prepare` returns its request, in a thread."""
        if self._process != os.getpid():  # the threads of the parent process are not in this one
            self._begin()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
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
        return future

    def _work(self) -> None:
        """Write what waits until nothing does."""
        while calls := self._take():
            try:
                answers = self._answers(calls)
            except BaseException as error:  # noqa: BLE001  (raised in the coroutines)
                answers = [error] * len(calls)
            answered = list(zip(calls, answers, strict=True))
            for loop in {call.future.get_loop() for call in calls}:
                with suppress(RuntimeError):  # it is closed
                    loop.call_soon_threadsafe(_answer, loop, answered)

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

    def _answers(self, calls: Sequence[_Call]) -> Sequence[object]:
        requests: dict[int, Request] = {}
        answers: dict[int, object] = {}
        for place, call in enumerate(calls):
            try:
                requests[place] = call.context.run(call.prepare)
            except Exception as error:  # noqa: BLE001  (raised in its coroutine)
                answers[place] = error
        answers |= zip(requests, self._make(list(requests.values())), strict=True)
        return [answers[place] for place in range(len(calls))]
