"""A worker inside another program."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from dueline.api.connection import Connection
from dueline.api.launch import make_worker, run
from dueline.api.starting import is_awaited, started_when_available
from dueline.api.stop_deadline import GRACE_S
from dueline.api.worker_plan import Plan
from dueline.core.clock import SECOND_US
from dueline.core.durations import span_text
from dueline.core.errors import Conflict, StoreUnavailable
from dueline.core.logging import log
from dueline.worker.worker import SOON_US, Worker


class EmbeddedWorker:
    """A worker in its own threads, as a context manager of both kinds; see `app.worker`."""

    def __init__(self, app: Connection, plan: Plan) -> None:
        self._app = app
        self._plan = plan
        self._worker: Worker | None = None  # also while it waits for its store
        self._is_stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        self._expect_new()
        self._start(self._try_to_make(None), None, ended=lambda: None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Drain the worker; raise its own failure if it had one."""
        assert self._thread is not None, "it is left after it was entered"
        self._stop()
        try:
            self._thread.join(self._stop_s())
        except KeyboardInterrupt:
            self._stop(hurry=True)
            self._thread.join(self._stop_s(hurry=True))
            raise
        self._report(error)

    async def __aenter__(self) -> Self:
        self._expect_new()
        loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        worker = await asyncio.to_thread(self._try_to_make, loop)
        self._start(worker, loop, ended=lambda: loop.call_soon_threadsafe(self._ended.set))
        return self

    def _expect_new(self) -> None:
        if self._thread is not None:
            raise Conflict(
                "This worker was started before.", hint="Call app.worker() for each block."
            )

    def _make(self, loop: asyncio.AbstractEventLoop | None) -> Worker:
        return make_worker(self._app, self._plan, loop, is_embedded=True)

    def _try_to_make(self, loop: asyncio.AbstractEventLoop | None) -> Worker | None:
        """Return the worker; None if its store is on a server that is unavailable now."""
        try:
            return self._make(loop)
        except StoreUnavailable as error:
            if not is_awaited(self._app, error):
                raise
            return None

    def _start(
        self,
        worker: Worker | None,
        loop: asyncio.AbstractEventLoop | None,
        *,
        ended: Callable[[], object],
    ) -> None:
        self._worker = worker
        self._thread = threading.Thread(
            target=self._run, args=(loop, ended), name="dueline-worker", daemon=True
        )
        self._thread.start()

    def _run(self, loop: asyncio.AbstractEventLoop | None, ended: Callable[[], object]) -> None:
        try:
            if self._worker is None:
                self._worker = started_when_available(
                    self._app, lambda: self._make(loop), self._is_stopped, name="worker"
                )
            if self._worker is not None:
                if self._is_stopped.is_set():
                    self._worker.stop()
                run(self._app, self._plan, self._worker)
        except BaseException as error:  # noqa: BLE001  (raised at the end of the block)
            log.exception("the worker failed")
            self._error = error
        with suppress(RuntimeError):  # the loop was closed before the worker was stopped
            ended()

    def _stop(self, *, hurry: bool = False) -> None:
        self._is_stopped.set()
        if self._worker is not None:
            self._worker.stop(hurry=hurry)

    def _stop_s(self, *, hurry: bool = False) -> float:
        """Return how long the end of the block waits for the worker, in seconds."""
        drain_us = 0 if hurry or self._worker is None else self._plan.drain_us
        return GRACE_S + (drain_us + SOON_US) / SECOND_US

    def _report(self, error: BaseException | None) -> None:
        """Raise the failure of the worker; log one that would hide an error of the block.

        Raises:
          StoreUnavailable: It has not stopped, because a call to its store has not returned.
        """
        failure = self._error
        if self._thread is not None and self._thread.is_alive() and self._worker is not None:
            waited = span_text(round(self._stop_s() * SECOND_US))
            failure = StoreUnavailable(
                f"The worker has not stopped within {waited}: a call to its store hangs.",
                hint="Check the store. The worker stops once the call returns; if the process "
                "ends before, jobs that it holds are due again when their leases expire.",
            )
            if error is not None:
                log.error("%s", failure)
                return
        if failure is not None:
            raise failure

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Drain the worker; raise its own failure if it had one."""
        assert self._thread is not None, "it is left after it was entered"
        self._stop()
        try:
            await self._wait_ended()
        except asyncio.CancelledError:
            self._stop(hurry=True)
            await self._wait_ended(hurry=True)
            raise
        finally:
            if self._ended.is_set():
                self._thread.join()  # the thread has nothing left to do
        self._report(error)

    async def _wait_ended(self, *, hurry: bool = False) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), self._stop_s(hurry=hurry))
