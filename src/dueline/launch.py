"""From an application to a running worker."""

import gc
import os
import random
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from dueline.clock import Clock
from dueline.config import place_of
from dueline.errors import ConfigError
from dueline.handler import Handler
from dueline.queue import Queues
from dueline.worker.execution import Execution
from dueline.worker.log import log
from dueline.worker.offspring import NO_WEAR, Wear
from dueline.worker.processes import ProcessRunner
from dueline.worker.runner import Runner
from dueline.worker.settler import Settler
from dueline.worker.threads import ThreadRunner
from dueline.worker.worker import Worker, WorkerSettings

YOUNG_OBJECTS = 20_000


class Application(Protocol):
    """What a worker needs of an application."""

    @property
    def queues(self) -> Queues:
        """The engine."""
        ...

    @property
    def clock(self) -> Clock:
        """The machine's clock."""
        ...

    @property
    def tasks(self) -> Mapping[str, Handler]:
        """The registered functions, by name."""
        ...


def launch(
    app: Application,
    *,
    serving: Mapping[str, int | None],
    concurrency: int,
    processes: int,
    drain_us: int,
    burst: bool,
    wear: Wear = NO_WEAR,
) -> int | None:
    """Run a worker in this thread until it is stopped, or its burst is over.

    In the main thread SIGTERM and SIGINT stop it: the first drains, a second gives everything
    back at once.

    Returns: the number of the signal that stopped it, None where none did.
    """
    queues = app.queues
    for name in serving:
        queues.catalog.settings(name)  # makes the queue, so that it can be seen
    news = threading.Event()
    name = worker_name()
    worker = Worker(
        queues,
        _runner(app, concurrency, processes, news, wear),
        Settler(queues, app.tasks, random.Random()),
        WorkerSettings(
            worker=name, serving=serving, tasks=sorted(app.tasks), burst=burst, drain_us=drain_us
        ),
        clock=app.clock,
        news=news,
    )
    log.info("worker %s serves %s", name, ", ".join(serving))
    with _signals(worker) as received, _rare_collections():
        worker.run()
    log.info("worker %s ended", name)
    return next(iter(received), None)


def worker_name() -> str:
    """Make a worker's id: `<host>:<pid>:<random>`."""
    return f"{socket.gethostname()}:{os.getpid()}:{os.urandom(4).hex()}"


def _runner(
    app: Application, concurrency: int, processes: int, news: threading.Event, wear: Wear
) -> Runner:
    time = app.queues.time
    if processes == 0:
        _warn_of_limits(app.tasks)
        return ThreadRunner(
            Execution(app.tasks),
            threads=concurrency,
            clock=app.clock,
            now_us=time.earliest_us,
            news=news,
        )
    place = place_of(app)
    if place is None:
        raise ConfigError(
            "Child processes cannot import this application: it is no global of a module.",
            hint="Assign it to a global name, or use processes=0.",
        )
    return ProcessRunner(
        [sys.executable, "-m", "dueline.child", place],
        processes=processes,
        threads=max(concurrency, processes),
        clock=app.clock,
        now_us=time.earliest_us,
        news=news,
        handlers=app.tasks,
        wear=wear,
    )


def _warn_of_limits(tasks: Mapping[str, Handler]) -> None:
    """Say once which limits do not hold where handlers run in threads."""
    names = sorted(name for name, handler in tasks.items() if handler.kill_after_us is not None)
    if names:
        log.warning(
            "kill_after needs child processes (--processes): %s can only be interrupted",
            ", ".join(names),
        )


@contextmanager
def _signals(worker: Worker) -> Iterator[Sequence[int]]:
    """Let SIGTERM and SIGINT stop the worker while it runs; answer those that came."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def stop(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        worker.stop(hurry=len(received) > 1)

    handlers = (signal.SIGTERM, signal.SIGINT)
    previous = {number: signal.signal(number, stop) for number in handlers}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Let the garbage collector look less often while this process is a worker.

    A worker makes and drops five tuples a job, none of them in a cycle; looking at the young
    ones after every 700 took a seventh of a no-op job's time (19.4 to 16.6 us, November 2026).
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    thresholds = gc.get_threshold()
    gc.set_threshold(max(thresholds[0], YOUNG_OBJECTS), *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
