"""A worker inside another program."""

import asyncio
import threading
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
    """A worker in its own threads, as an asynchronous context manager; see `app.worker`."""

    def __init__(self, app: Connection, plan: Plan) -> None:
        self._app = app
        self._plan = plan
        self._worker: Worker | None = None
        self._error: BaseException | None = None

    async def __aenter__(self) -> Self:
        if self._worker is not None:
            raise Conflict(
                "This worker was started before.", hint="Call app.worker() for each block."
            )
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._worker = await asyncio.to_thread(make_worker, self._app, self._plan, self._loop)
        threading.Thread(
            target=self._run, args=(self._worker,), name="dueline-worker", daemon=True
        ).start()
        return self

    def _run(self, worker: Worker) -> None:
        try:
            run(self._app, self._plan, worker)
        except BaseException as error:  # noqa: BLE001  (raised at the end of the block)
            log.exception("the worker failed")
            self._error = error
        with suppress(RuntimeError):  # the loop was closed before the worker was stopped
            self._loop.call_soon_threadsafe(self._ended.set)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Drain the worker; raise its own failure if it had one."""
        assert self._worker is not None, "it is left after it was entered"
        self._worker.stop()
        try:
            await self._ended.wait()
        except asyncio.CancelledError:
            self._worker.stop(hurry=True)
            await self._ended.wait()
            raise
        if self._error is not None:
            raise self._error
