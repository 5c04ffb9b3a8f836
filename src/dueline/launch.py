"""From an application to a running worker."""

import asyncio
import gc
import os
import random
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import NamedTuple, Protocol

from dueline.clock import Clock, duration_us
from dueline.config import place_of
from dueline.errors import BadInput, ConfigError
from dueline.handler import Handler
from dueline.hooks import Hooks
from dueline.queue import Queues
from dueline.settings import check_queue_name
from dueline.signals import passed_on
from dueline.waker import FALLBACK_US
from dueline.watch import Watch
from dueline.worker.execution import Execution
from dueline.worker.log import log
from dueline.worker.offspring import Wear, spawning
from dueline.worker.pace import GAP_US_MAX_UNHEARD, Pace
from dueline.worker.processes import ProcessRunner, threads_each
from dueline.worker.runner import Runner
from dueline.worker.settler import Settler
from dueline.worker.threads import ThreadRunner
from dueline.worker.worker import Worker, WorkerSettings

CONCURRENCY = 16
DRAIN_S = 25.0
MIB = 1024 * 1024

YOUNG_OBJECTS = 20_000
TURN_S_MAX = 0.001


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

    @property
    def hooks(self) -> Hooks:
        """Who wants to hear of what."""
        ...


class Plan(NamedTuple):
    """How a worker is to work. serving: queues, each with its slots or None for common ones.

    monitor: whether it stands for the monitor's office.
    """

    serving: Mapping[str, int | None]
    concurrency: int
    processes: int
    drain_us: int
    burst: bool
    wear: Wear
    monitor: bool


def plan_of(
    queues: Mapping[str, int | None] | list[str],
    concurrency: int,
    drain: timedelta | float,
    processes: int,
    *,
    burst: bool = False,
    wear: tuple[int | None, int | None] = (None, None),
    monitor: bool = True,
) -> Plan:
    """Check how a worker is to work. wear: jobs and MiB after which a child is replaced.

    Raises: BadInput: a name or number out of range.
    """
    if not isinstance(queues, list | Mapping):
        raise BadInput("queues is a list of names, or their slots by name.")
    names = dict.fromkeys(queues) if isinstance(queues, list) else dict(queues)
    for name, slots in names.items():
        check_queue_name(name)
        if slots is not None and not _is_count(slots, least=1):
            raise BadInput(f"The queue {name} has {slots!r} slots.", hint="Use 1 or more.")
    if not names:
        raise BadInput("The worker has no queues to serve.", hint="Name at least one.")
    if not _is_count(concurrency, least=1) or not _is_count(processes, least=0):
        raise BadInput("concurrency is at least 1, processes at least 0.")
    if (drain_us := duration_us(drain)) < 0:
        raise BadInput(f"drain={drain!r} is negative.", hint="Use 0 to give back at once.")
    for word, value in zip(("recycle_jobs", "recycle_mb"), wear, strict=True):
        if value is not None and not (_is_count(value, least=1) and processes):
            raise BadInput(
                f"{word} is {value!r} with {processes} processes.",
                hint="Use 1 or more, and child processes (processes=).",
            )
    worn = Wear(wear[0], wear[1] and wear[1] * MIB)
    return Plan(names, concurrency, processes, drain_us, burst, worn, monitor and not burst)


def _is_count(value: object, *, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def launch(app: Application, plan: Plan) -> int | None:
    """Run a worker in this thread until it is stopped, or its burst is over.

    In the main thread SIGTERM and SIGINT stop it: the first drains, a second gives everything
    back at once.

    Returns: the number of the signal that stopped it, None where none did.
    """
    worker = make_worker(app, plan)
    ending = passed_on(lambda count: worker.stop(hurry=count > 1))
    with ending as received, _rare_collections(), _short_turns():
        run(app, plan, worker)
    return next(iter(received), None)


def make_worker(
    app: Application,
    plan: Plan,
    loop: asyncio.AbstractEventLoop | None = None,
    *,
    make_runner: Callable[[threading.Event], Runner] | None = None,
) -> Worker:
    """Put a worker together; opens the store.

    Args:
      loop: where coroutine handlers run.
      make_runner: makes what runs handlers, if not as the plan says; takes the event that it sets.
    """
    queues = app.queues
    for name in plan.serving:
        queues.catalog.settings(name)  # makes the queue, so that it can be seen
    news = threading.Event()
    name = worker_name()
    ear = queues.waker.listen(list(plan.serving), news)
    log.info("worker %s serves %s", name, ", ".join(plan.serving))
    return Worker(
        queues,
        make_runner(news) if make_runner else _runner(app, plan, news, loop),
        Settler(queues, app.tasks, random.Random(), app.hooks),
        WorkerSettings(
            worker=name,
            serving=plan.serving,
            tasks=sorted(app.tasks),
            burst=plan.burst,
            drain_us=plan.drain_us,
        ),
        clock=app.clock,
        news=news,
        ear=ear,
        pace=Pace(FALLBACK_US if ear.is_open else GAP_US_MAX_UNHEARD, random.random),
    )


def run(app: Application, plan: Plan, worker: Worker) -> None:
    """Run a worker in this thread until it is stopped, and beside it the monitor's chores."""
    watch = Watch(app.queues, worker.name, clock=app.clock) if plan.monitor else nullcontext()
    with watch:
        worker.run()
    log.info("worker %s ended", worker.name)


def worker_name() -> str:
    """Make a worker's id: `<host>:<pid>:<random>`."""
    return f"{socket.gethostname()}:{os.getpid()}:{os.urandom(4).hex()}"


def _runner(
    app: Application, plan: Plan, news: threading.Event, loop: asyncio.AbstractEventLoop | None
) -> Runner:
    time = app.queues.time
    if plan.processes == 0:
        _warn_of_limits(app.tasks)
        return ThreadRunner(
            Execution(app.tasks, app.hooks),
            threads=plan.concurrency,
            clock=app.clock,
            now_us=time.earliest_us,
            news=news,
            loop=loop,
        )
    place = place_of(app)
    if place is None:
        raise ConfigError(
            "Child processes cannot import this application: it is no global of a module.",
            hint="Assign it to a global name, or use processes=0.",
        )
    threads = max(plan.concurrency, plan.processes)
    each = threads_each(threads, plan.processes)
    command = [sys.executable, "-m", "dueline.child", place, str(each)]
    return ProcessRunner(
        spawning(command, app.tasks),
        processes=plan.processes,
        threads=threads,
        clock=app.clock,
        now_us=time.earliest_us,
        news=news,
        wear=plan.wear,
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


@contextmanager
def _short_turns() -> Iterator[None]:
    """Let threads wait less for one that computes, while this process is a worker.

    A job passes three of them before its handler is called. Beside a handler that computes all
    the time, with turns of 5 ms it waited for 14 to 23 ms, with 1 ms for 8 to 9; what a no-op
    job costs did not change (November 2026).
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    turn_s = sys.getswitchinterval()
    sys.setswitchinterval(min(turn_s, TURN_S_MAX))
    try:
        yield
    finally:
        sys.setswitchinterval(turn_s)
