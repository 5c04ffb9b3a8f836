"""A worker inside another program."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from dueline.api.connection import Connection
from dueline.api.launch import make_worker, run
from dueline.api.worker_plan import Plan
from dueline.core.errors import Conflict
from dueline.core.logging import log
from dueline.worker.worker import Worker


class EmbeddedWorker:
    """A worker in its own threads, as a context manager of both kinds; see `app.worker`."""

    def __init__(self, app: Connection, plan: Plan) -> None:
        self._app = app
        self._plan = plan
        self._worker: Worker | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        self._expect_new()
        worker = make_worker(self._app, self._plan, is_embedded=True)
        self._start(worker, ended=lambda: None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Drain the worker; raise its own failure if it had one."""
        assert self._worker is not None, "it is left after it was entered"
        assert self._thread is not None, "it is left after it was entered"
        self._worker.stop()
        try:
            self._thread.join()
        except KeyboardInterrupt:
            self._worker.stop(hurry=True)
            self._thread.join()
            raise
        if self._error is not None:
            raise self._error

    async def __aenter__(self) -> Self:
        self._expect_new()
        loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        worker = await asyncio.to_thread(make_worker, self._app, self._plan, loop, is_embedded=True)
        self._start(worker, ended=lambda: loop.call_soon_threadsafe(self._ended.set))
        return self

    def _expect_new(self) -> None:
        if self._worker is not None:
            raise Conflict(
                "This worker was started before.", hint="Call app.worker() for each block."
            )

    def _start(self, worker: Worker, *, ended: Callable[[], object]) -> None:
        self._worker = worker
        self._thread = threading.Thread(
            target=self._run, args=(worker, ended), name="dueline-worker", daemon=True
        )
        self._thread.start()

    def _run(self, worker: Worker, ended: Callable[[], object]) -> None:
        try:
            run(self._app, self._plan, worker)
        except BaseException as error:  # noqa: BLE001  (raised at the end of the block)
            log.exception("the worker failed")
            self._error = error
        with suppress(RuntimeError):  # the loop was closed before the worker was stopped
            ended()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Drain the worker; raise its own failure if it had one."""
        assert self._worker is not None, "it is left after it was entered"
        assert self._thread is not None, "it is left after it was entered"
        self._worker.stop()
        try:
            await self._ended.wait()
        except asyncio.CancelledError:
            self._worker.stop(hurry=True)
            await self._ended.wait()
            raise
        finally:
            if self._ended.is_set():
                self._thread.join()  # it has nothing left to do
        if self._error is not None:
            raise self._error
