"""Start of workers."""

import random
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from dueline.api.cells import is_interactive, place_of_cells
from dueline.api.config import place_of
from dueline.api.connection import Connection
from dueline.api.maintenance import make_maintenance_threads
from dueline.api.service_manager import notify, reported
from dueline.api.signals import SIGNALLED, passed_on
from dueline.api.starting import started_when_available
from dueline.api.stop_deadline import StopDeadline, end_process
from dueline.api.worker_plan import Plan
from dueline.coordination.worker_registry import KnownTasks
from dueline.core.clock import SECOND_US
from dueline.core.errors import ConfigError, SchemaMismatch, StoreCorrupt
from dueline.core.logging import enable_loggers, log
from dueline.core.process_identity import importing, worker_name
from dueline.core.requirements import expect_met
from dueline.core.system import IS_POSIX
from dueline.core.wakeup import Signal
from dueline.core.worker_needs import Has
from dueline.jobs.queue import Queues
from dueline.tasks.handler import Handler
from dueline.tasks.signatures import Signatures
from dueline.worker.backoff import PollTimer
from dueline.worker.execution import Execution
from dueline.worker.runner import Runner
from dueline.worker.settler import Settler
from dueline.worker.store_calls import counted_calls
from dueline.worker.tally import Tally
from dueline.worker.thread_runner import ThreadRunner
from dueline.worker.worker import Worker
from dueline.worker.worker_settings import WorkerSettings

if TYPE_CHECKING:
    import asyncio  # slow to load, and only needed where handlers are coroutines


def launch(app: Connection, plan: Plan) -> int | None:
    """Run a worker in this thread until it is stopped, or its burst ends.

    In the main thread, the first SIGTERM or SIGINT drains it, and a second one releases its jobs
    at once. See also `StopDeadline`.

    Returns: the number of the signal that stopped it, SIGTERM if an operator did; None after a
      burst.
    """
    if plan.http is None:
        return _launch(app, plan, None)
    tally = Tally()
    with counted_calls(app.store, tally):
        return _launch(app, plan, tally)


def _launch(app: Connection, plan: Plan, tally: Tally | None) -> int | None:
    deadline = StopDeadline(plan.drain_us / SECOND_US)
    is_stopped, workers = threading.Event(), list[Worker]()

    def stop(count: int) -> None:
        deadline.stopped(SIGNALLED + received[0], hurry=count > 1 or not workers)
        notify("STOPPING=1")
        is_stopped.set()
        for worker in workers:
            worker.stop(hurry=count > 1)

    def start() -> Worker:
        return make_worker(app, plan, tally=tally, is_embedded=not plan.ends_process)

    with passed_on(stop) as received:
        worker = (
            start() if plan.burst
            else started_when_available(app, start, is_stopped, name="worker")
        )  # fmt: skip
        if worker is not None:
            workers.append(worker)
            if is_stopped.is_set():
                worker.stop()
            with _answering(app, plan, worker, tally), reported(worker):
                run(app, plan, worker, tally)
        deadline.over()
    is_by_request = worker is not None and worker.is_stopped_by_request
    number = next(iter(received), signal.SIGTERM if is_by_request else None)
    if worker is not None and worker.left_running and number is not None and plan.ends_process:
        end_process(SIGNALLED + number)  # their jobs are released: they must not run on
    return number


def _answering(
    app: Connection, plan: Plan, worker: Worker, tally: Tally | None
) -> AbstractContextManager[object]:
    """Return what answers HTTP requests about a worker, if they were asked for."""
    if plan.http is None or tally is None:
        return nullcontext()
    from dueline.api.worker_http import Listener, listening  # noqa: PLC0415  (slow to load)

    listener = Listener(app.queues.engine, worker, tally, plan.concurrency)
    return listening(plan.http, listener)


def known_of(app: Connection, has: Has) -> KnownTasks:
    """Return what workers of an application can run, also tasks that are registered later."""
    return KnownTasks(app.tasks, app.payloads.numbers, signatures=Signatures(app.tasks), has=has)


def make_worker(
    app: Connection,
    plan: Plan,
    loop: "asyncio.AbstractEventLoop | None" = None,
    *,
    make_runner: Callable[[threading.Event], Runner] | None = None,
    tally: Tally | None = None,
    is_embedded: bool = False,
) -> Worker:
    """Open the store and return a worker.

    Args:
      loop: event loop of coroutine handlers.
      make_runner: returns the runner of handlers, instead of the plan's; takes the event to set.
      tally: counts the attempts, for metrics.
      is_embedded: the process goes on after the worker.
    """
    if importing.is_set():
        raise ConfigError(
            "A child process of a worker imports this module, which starts a worker again.",
            hint='Start the worker, and enqueue, below `if __name__ == "__main__":`.',
        )
    enable_loggers()
    queues = app.queues
    plan = _without_unreadable(queues, plan)
    for handler in app.tasks.values():
        if handler.requires is not None and handler.requires.queue in plan.serving:
            expect_met(queues.engine, handler.requires, handler.requires.queue)
    wakeup = Signal()
    name = worker_name()
    channels = [*plan.serving, name]  # permits wake it by its name
    listener = queues.engine.wakeups.listen(channels, wakeup)
    try:
        worker = Worker(
            queues.engine,
            make_runner(wakeup) if make_runner else _runner(app, plan, wakeup, loop, tally),
            Settler(queues.engine, app.tasks, random.Random(), app.hooks, tally),
            WorkerSettings(
                worker=name,
                serving=plan.serving,
                known=known_of(app, plan.has),
                burst=plan.burst,
                drain_us=plan.drain_us,
                prefetch=plan.prefetch and not app.hooks.has("claim"),
                is_embedded=is_embedded,
            ),
            clock=app.clock,
            wakeup=wakeup,
            listener=listener,
            pace=PollTimer(listener.gap_us_max, random.random),
        )
    except BaseException:
        listener.close()
        raise
    log.info("worker %s serves %s", name, ", ".join(plan.serving))
    return worker


def _without_unreadable(queues: Queues, plan: Plan) -> Plan:
    """Create the queues; omit those whose settings are damaged.

    Raises:
      StoreCorrupt: the settings of all queues are damaged.
    """
    serving: dict[str, int | None] = {}
    for name, slots in plan.serving.items():
        try:
            queues.engine.catalog.settings(name)
        except SchemaMismatch:
            raise
        except StoreCorrupt as error:
            log.error("the queue %s is not served: %s", name, error)
            failure = error
        else:
            serving[name] = slots
    if not serving:
        raise failure
    return plan._replace(serving=serving)


def run(app: Connection, plan: Plan, worker: Worker, tally: Tally | None = None) -> None:
    """Run a worker in this thread until it is stopped, and maintenance in threads next to it."""
    watch = make_maintenance_threads(app.queues, worker.name, is_monitor=plan.monitor, tally=tally)
    if plan.burst:  # store due jobs of schedules before the first poll
        watch.check_schedules()
    with watch, app._delivering(at_once=plan.burst):  # noqa: SLF001  (of this package)
        worker.run()
    log.debug("worker %s ended", worker.name)


def _runner(
    app: Connection,
    plan: Plan,
    wakeup: threading.Event,
    loop: "asyncio.AbstractEventLoop | None",
    tally: Tally | None,
) -> Runner:
    time = app.queues.engine.time
    if plan.processes == 0:
        _warn_of_limits(app.tasks)
        execution = Execution(app.tasks, app.hooks)
        execution.watch.counts = tally
        return ThreadRunner(
            execution,
            threads=plan.concurrency,
            clock=app.clock,
            now_us=time.earliest_us,
            wakeup=wakeup,
            loop=loop,
        )
    if not IS_POSIX:
        raise ConfigError(
            "This system has no child processes for workers.", hint="Use processes=0."
        )
    if durable := sorted(n for n, each in app.tasks.items() if each.is_durable):
        raise ConfigError(
            f"Durable functions run in threads only, and this application has {durable[0]}.",
            hint="Use processes=0, or run them by an application of their own.",
        )
    place = place_of_cells(app) or place_of(app)
    if place is None and is_interactive("__main__"):
        raise ConfigError(
            "Child processes cannot import this application: it is not a global of a notebook, or "
            "this shell does not keep what was typed.",
            hint="Write the application and its tasks to a file and import it, as with %%writefile "
            "tasks.py; or use processes=0.",
        )
    if place is None:
        raise ConfigError(
            "Child processes cannot import this application: it is not a global of a module.",
            hint="Assign it to a global name, or use processes=0.",
        )
    # Few workers need these, which load a megabyte of modules.
    from dueline.worker.child_handle import spawning  # noqa: PLC0415
    from dueline.worker.process_runner import (  # noqa: PLC0415
        ProcessRunner,
        jobs_each,
        threads_each,
    )

    threads = max(plan.concurrency, plan.processes)
    each = threads_each(threads, plan.processes)
    command = [sys.executable, "-m", "dueline.api.worker_child", place, str(each), *sys.path]
    return ProcessRunner(
        spawning(command, app.tasks, jobs=jobs_each(each)),
        processes=plan.processes,
        threads=threads,
        clock=app.clock,
        now_us=time.earliest_us,
        wakeup=wakeup,
        wear=plan.wear,
    )


def _warn_of_limits(tasks: Mapping[str, Handler]) -> None:
    """Log which limits cannot be enforced in threads."""
    names = sorted(name for name, handler in tasks.items() if handler.kill_after_us is not None)
    if names:
        log.warning(
            "kill_after needs child processes (--processes): %s can only be interrupted",
            ", ".join(names),
        )
