"""The common part of handles on jobs and workflows."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, NoReturn, ParamSpec, TypeVar
from weakref import WeakSet

from dueline.core.clock import SECOND_US, Clock, pauses
from dueline.core.job import JobId
from dueline.core.logging import log
from dueline.core.store_capabilities import answer_of
from dueline.jobs.queue import Queues

REPORT_AFTER_US: Final = 10 * SECOND_US
"""How long a caller waits for a result before a job that cannot start is logged."""

REPORT_EVERY_US: Final = 600 * SECOND_US

R_co = TypeVar("R_co", covariant=True)
P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")

_warned_in: WeakSet[Any] = WeakSet()  # event loops


def _warn_in_a_loop() -> None:
    """Log, once for each event loop, that the caller blocks it."""
    asyncio = sys.modules.get("asyncio")  # without it there is no loop
    loop = asyncio.events._get_running_loop() if asyncio is not None else None  # noqa: SLF001
    if loop is not None and loop not in _warned_in:
        _warned_in.add(loop)
        log.warning(
            "result() blocks the event loop of this thread while it waits; write "
            "`await job.aresult()` in coroutines"
        )


def twin(
    call: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Return the asynchronous twin of a method, or of a property: it runs in another thread."""
    method: Any = getattr(call, "fget", call)  # mypy takes a property for its method

    @wraps(method)
    async def awaited(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        import asyncio  # noqa: PLC0415  (slow to load)

        value: T = await asyncio.to_thread(method, self, *args, **kwargs)
        return value

    name = method.__name__
    awaited.__name__ = f"a{name}"
    awaited.__qualname__ = method.__qualname__.removesuffix(name) + awaited.__name__
    awaited.__doc__ = f"Do as `{name}` does, without blocking the event loop."
    return awaited


class Handle(ABC, Generic[R_co]):
    """The id of a job or workflow, and the wait for its result."""

    __slots__ = ("_clock", "_id", "_queues")

    def __init__(self, handle_id: JobId, queues: Queues, clock: Clock) -> None:
        self._id = handle_id
        self._queues = queues
        self._clock = clock

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and other._id == self._id

    def __hash__(self) -> int:
        return hash(self._id)

    if not TYPE_CHECKING:  # for mypy, it cannot be awaited

        def __await__(self) -> NoReturn:
            """Name what can be awaited: the job or workflow is stored by then."""
            what, stores = self._awaited
            raise TypeError(
                f"A {what} cannot be awaited; {self.id} is stored. Write `await {stores}(...)` to "
                f"store it, and `await {what}.aresult()` for the result."
            )

    @property
    def id(self) -> str:
        """The id: 32 hexadecimal digits, ordered by the time of creation."""
        return self._id.hex()

    def result(self, timeout: timedelta | float | None = None) -> R_co:
        """Wait for the end of the job or workflow and return its result.

        Args:
            timeout: Maximum wait, a timedelta or seconds; None for no limit, 0 for a single check.

        Returns:
            What the handler of the job, or the last part of the workflow, returned.

        Raises:
            JobFailed: There is no result; the message says why.
            TimeoutError: The job or workflow has not ended in time.
            NotFound: It does not exist, or its result has expired or is not kept.
            StoreUnavailable: The store has not answered within its own time limit.
        """
        report_us, read = self._clock.monotonic_us() + REPORT_AFTER_US, None
        endings = self._queues.engine.endings
        with endings.waiting(self._id) as event:
            for pause_s in pauses(self._clock, timeout):
                if pause_s:
                    _warn_in_a_loop()
                    if self._clock.monotonic_us() >= report_us:
                        report_us += REPORT_EVERY_US
                        self._report_wait(read)
                    endings.wait(event, self._clock, pause_s)
                has_ended, read = self._answer(self._read)
                if has_ended:
                    return self._value(read)
        raise self._late(read)

    async def aresult(
        self,
        timeout: timedelta | float | None = None,  # noqa: ASYNC109  (as `result`)
    ) -> R_co:
        """Wait for the result like `result`, without blocking the event loop.

        Args:
            timeout: Maximum wait, a timedelta or seconds; None for no limit, 0 for a single check.

        Returns:
            The result.

        Raises:
            JobFailed: As in `result`; so are TimeoutError and NotFound.
        """
        import asyncio  # noqa: PLC0415  (slow to load)

        report_us, read = self._clock.monotonic_us() + REPORT_AFTER_US, None
        for pause_s in pauses(self._clock, timeout):
            if pause_s:
                if self._clock.monotonic_us() >= report_us:
                    report_us += REPORT_EVERY_US
                    await asyncio.to_thread(self._report_wait, read)
                await asyncio.sleep(pause_s)
            has_ended, read = await asyncio.to_thread(self._answer, self._read)
            if has_ended:
                return self._value(read)
        raise self._late(read)

    def _answer(self, read: Callable[[], T]) -> T:
        """Return what `read` returns; raise StoreUnavailable if the disk does not answer."""
        return answer_of(self._queues.engine.store, read)

    @abstractmethod
    def _read(self) -> tuple[bool, Any]:
        """Return whether it has ended, and what `_value` or `_late` takes."""

    @abstractmethod
    def _value(self, read: Any) -> R_co:  # noqa: ANN401
        """Return the result, or raise the error that says why it is missing."""

    def _report_wait(self, read: Any) -> None:  # noqa: ANN401
        """Log why it does not start, if that is known; called while a caller waits for long."""

    @abstractmethod
    def _late(self, read: Any) -> TimeoutError:  # noqa: ANN401
        """Return the error of a wait that was too short."""
