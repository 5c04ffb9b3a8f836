"""`dueline worker`: run jobs."""

import gc
import logging
import os
import socket
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from signal import Signals
from typing import Annotated, Literal

import typer

from dueline.api.application import Dueline
from dueline.api.config import place_in_package, place_of
from dueline.api.connect import check_exists, mask
from dueline.api.connection import UNDECLARED_LIMIT
from dueline.api.launch import known_of, launch
from dueline.api.logs import LogSettings
from dueline.api.signals import SIGNALLED
from dueline.api.stop_deadline import StopDeadline
from dueline.api.worker_plan import CONCURRENCY, DRAIN_S, plan_of
from dueline.cli.errors import Exit
from dueline.cli.options import argument, option, read_pairs
from dueline.cli.process_one import stay_as_process_one
from dueline.cli.reload import run_again_and_again
from dueline.cli.session import OF_THIS_PROCESS, Session, is_of_this_process, session_of
from dueline.coordination import failed_starts
from dueline.coordination.failed_starts import FailedStart
from dueline.coordination.worker_registry import live_workers
from dueline.core.clock import SECOND_US, SystemClock
from dueline.core.durations import parse_span
from dueline.core.errors import (
    BadInput,
    ConfigError,
    DuelineError,
    StoreCorrupt,
    StoreUnavailable,
)
from dueline.core.limit_names import semaphore_of
from dueline.core.text import one_line
from dueline.core.version import VERSION
from dueline.core.worker_needs import ENVIRONMENT, Has, words_of
from dueline.jobs.counts import count
from dueline.jobs.unknown_tasks import known_tasks, unknown_tasks, unknown_text
from dueline.limits.usage import declared_limits
from dueline.schedules.scheduler import all_schedules

_log = logging.getLogger("dueline.start")

TASKS_SHOWN = 20
LEFT_STATES = ("ready", "running", "retrying", "scheduled", "dead")
LEFT_COUNTED_MAX = 100_000
"""Maximum number of jobs of a queue that are counted after a burst."""

LEFT_EVERY_S = 0.5
YOUNG_OBJECTS = 20_000
TURN_S_MAX = 0.001


LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]


def worker(
    context: typer.Context,
    app: Annotated[str | None, argument("MODULE:APP", "Application.")] = None,
    *,
    queue: Annotated[
        list[str] | None,
        option("NAME[:SLOTS]", "Queue to serve, with its slots; repeatable.", "-q", "--queue"),
    ] = None,
    concurrency: Annotated[
        int, option("N", "Maximum number of concurrent jobs.", "-c", "--concurrency")
    ] = CONCURRENCY,
    processes: Annotated[int, option("N", "Number of child processes; 0 for threads.")] = 0,
    recycle_jobs: Annotated[
        int | None, option("N", "Replace a child process after N jobs.")
    ] = None,
    recycle_mb: Annotated[
        int | None, option("MIB", "Replace a child process above this memory.")
    ] = None,
    drain: Annotated[
        str, option("DURATION", "Time for running jobs to finish after SIGTERM.")
    ] = f"{DRAIN_S:g}s",
    burst: Annotated[bool, typer.Option("--burst", help="Exit when no job is due.")] = False,
    until_done: Annotated[
        bool,
        typer.Option("--until-done", help="As --burst, but wait for retries and running jobs."),
    ] = False,
    monitor: Annotated[
        bool, typer.Option("--monitor/--no-monitor", help="Take part in maintenance.")
    ] = True,
    prefetch: Annotated[
        bool,
        typer.Option(
            "--prefetch/--no-prefetch", help="Claim jobs before they can start, for speed."
        ),
    ] = True,
    has: Annotated[
        list[str] | None,
        option("NAME=VALUE", "Label or units for jobs with needs; repeatable."),
    ] = None,
    http: Annotated[
        str | None, option("ADDRESS:PORT", "Serve metrics and probes, such as 127.0.0.1:9465.")
    ] = None,
    reload: Annotated[
        bool,
        typer.Option("--reload", help="Restart when a Python file of the application changes."),
    ] = False,
    log_level: Annotated[
        LogLevel | None, typer.Option("--log-level", help="Lowest level of records that are shown.")
    ] = None,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="Format of the log.")
    ] = "text",
    quiet: Annotated[bool, typer.Option("--quiet", help="Log only what may be wrong.")] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Log each job, however short jobs are.")
    ] = False,
) -> int:
    """Run jobs.

    Serves the queues of -q; by default `default`, the declared queues and those of the tasks. The
    first SIGTERM or Ctrl-C lets running jobs finish, a second one releases them at once. Logs one
    line per job to stderr, or one for more than 20 short ones. Exits 143 after SIGTERM, 130 after
    Ctrl-C. After --burst and --until-done it logs what is left in its queues, and exits 0, or 8 if
    jobs are ready or retrying.

    Example: dueline worker tasks:app -q mail:4 --processes 2
    """
    if (code := stay_as_process_one()) is not None:
        return code
    if reload:
        folder = Path() if app else session_of(context).source_folder
        return run_again_and_again([word for word in sys.argv[1:] if word != "--reload"], folder)
    drain_s = parse_span(drain) / SECOND_US
    serving = _slots(queue) if queue else None
    settings = _log_settings(log_level, log_format, quiet=quiet, verbose=verbose)
    settings.show_own()
    session = session_of(context)
    try:
        application = session.application(app)
        _ = application.tasks  # imports what it includes
    except ConfigError as error:
        _record_failure(session, app, tuple(serving or ()), error)
        raise
    settings.show_others()  # unless the application has configured them
    if processes:
        settings.give_to_children()
    plan = plan_of(
        application.serving(serving), concurrency, drain_s, processes,
        burst=burst or until_done,
        wear=(recycle_jobs, recycle_mb), monitor=monitor, http=http, prefetch=prefetch,
        has=read_pairs(has or _words(os.environ.get(ENVIRONMENT, "")), "has"),
    )._replace(ends_process=True)  # fmt: skip
    slots = f"{concurrency} slots, {processes or 'no'} child process{'es' * (processes != 1)}"
    without = ", no maintenance" * (not monitor) + ", no prefetch" * (not prefetch)
    having = f", with {', '.join(words_of(plan.has))}" if plan.has else ""
    _greet(application, serving, slots + without + having, plan.has)
    with suppress(DuelineError):  # the worker waits for the store
        failed_starts.clear(application.engine, session.place(app))
    with tuned():
        stopped_by = launch(application, plan)
        try:
            while until_done and stopped_by is None and _waits_for_more(application, plan.serving):
                stopped_by = launch(application, plan)
        except KeyboardInterrupt:
            return Exit.INTERRUPTED
    if stopped_by is not None:
        StopDeadline(0).stopped(SIGNALLED + stopped_by, hurry=True)  # the exit waits for others
        _log.info("stopped: %s", Signals(stopped_by).name)
        return SIGNALLED + stopped_by
    return _say_what_is_left(application, plan.serving)


def _left_in(app: Dueline, names: Collection[str]) -> Counter[str]:
    """Count the jobs of some queues by state."""
    left: Counter[str] = Counter()
    for name in set(names).intersection(app.engine.catalog.names()):
        counts = count(app.engine, name, (), most=LEFT_COUNTED_MAX)
        left.update({state: getattr(counts, state) for state in LEFT_STATES})
    return left


def _waits_for_more(app: Dueline, names: Collection[str]) -> bool:
    """Wait for retries to be due, and for jobs that other workers run; return whether any is."""
    clock, before = SystemClock(), _left_in(app, names)
    left = before
    while left["retrying"] or left["running"]:
        clock.sleep(LEFT_EVERY_S)
        left = _left_in(app, names)
        if left["ready"] > before["ready"]:
            return True
    return left["ready"] > before["ready"]


def _say_what_is_left(app: Dueline, names: Collection[str]) -> int:
    """Log what a burst has left; return the exit code."""
    left = _left_in(app, names)
    text = ", ".join(f"{number:,} {state}" for state, number in left.items() if number)
    _log.info("stopped: no job is due%s", f"; left: {text}" if text else "")
    return Exit.LEFT if left["ready"] or left["retrying"] else Exit.DONE


def _record_failure(
    session: Session, app: str | None, queues: tuple[str, ...], error: ConfigError
) -> None:
    """Leave word in the store, if it is known, that this machine cannot import the application."""
    with suppress(DuelineError):
        address = session.known_address(error)
        if address is None or is_of_this_process(address):
            return
        check_exists(address)
        with closing(Dueline(address)) as client:
            why = one_line(error.message)
            failed = FailedStart(session.place(app), socket.gethostname(), why, queues)
            failed_starts.record(client.engine, failed)


def _greet(app: Dueline, queues: Mapping[str, int | None] | None, slots: str, has: Has) -> None:
    """Log what the worker serves, and what may be a mistake."""
    own = app.serving(None)
    serving = dict.fromkeys(queues or own)
    _log.info("dueline %s on %s: %s", VERSION, mask(app.url), slots)
    if is_of_this_process(app.url):
        _log.warning(OF_THIS_PROCESS)
    tasks = sorted(app.tasks)
    rest = f" and {len(tasks) - TASKS_SHOWN} more" if len(tasks) > TASKS_SHOWN else ""
    _log.info("tasks: %s%s", ", ".join(map(one_line, tasks[:TASKS_SHOWN])) or "none", rest)
    if not tasks:
        hint = "import their modules, or see app.include"
        if place := place_in_package(place_of(app) or ""):
            hint = f"its file is in a package, so name the module, {place}"
        _log.warning("The application has no tasks: %s.", hint)
    try:
        _warn_of_store(app, own, serving, has)
    except StoreUnavailable as error:
        if app.store.scope != "network":
            raise
        _log.warning("the store is unavailable: %s", error)  # the worker waits for it


def _warn_of_store(app: Dueline, own: Collection[str], serving: Collection[str], has: Has) -> None:
    """Log what the store says against this start."""
    tasks, catalog = sorted(app.tasks), app.engine.catalog
    known = {*own, *catalog.names()}
    workers, now_us = live_workers(app.engine), app.engine.time.latest_us()
    own_tasks = known_of(app, has)
    _warn_of_names(app, {*tasks, *(task for live in workers for task in live.tasks)})
    for name in serving:
        if name not in known:
            _log.warning("The queue %s is new, and no task uses it: is the name right?", name)
            continue
        try:
            paused = catalog.settings(name)
        except StoreCorrupt:  # the worker reports it
            continue
        what = ["all of it"] * paused.is_paused
        tenants = paused.paused_tenants
        what += [f"tenant {tenant}" if tenant else "jobs without a tenant" for tenant in tenants]
        what += [f"task {task}" for task in paused.paused_tasks]
        if what:
            _log.warning("The queue %s is paused: %s.", name, one_line(", ".join(what)))
        with_own = known_tasks(name, workers, [own_tasks])
        for task in unknown_tasks(app.engine, name, with_own, now_us).values():
            _log.warning("%s in the queue %s; its jobs wait", task.text, name)


def _warn_of_names(app: Dueline, known: Collection[str]) -> None:
    """Log limits that are not declared, and schedules of unknown tasks."""
    limits = declared_limits(app.engine.store)
    unknown = {
        (semaphore_of(limit), task)
        for task, handler in app.tasks.items()
        for limit in handler.limits
        if semaphore_of(limit) not in limits
    }
    for limit, task in sorted(unknown):
        _log.warning(UNDECLARED_LIMIT, f"{limit} of {one_line(task)}")
    for name, schedule, _ in all_schedules(app.engine):
        if (task := schedule.template.task) not in known:
            _log.warning("The schedule %s: %s", name, unknown_text(task))


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _slots(names: Sequence[str]) -> dict[str, int | None]:
    serving: dict[str, int | None] = {}
    for text in names:
        name, colon, slots = text.partition(":")
        if colon and not (slots.isascii() and slots.isdigit()):
            raise BadInput(f"{text!r} is not NAME or NAME:SLOTS.", hint="Use -q mail:16.")
        serving[name] = int(slots) if colon else None
    return serving


def _log_settings(
    level: LogLevel | None, form: LogFormat, *, quiet: bool, verbose: bool
) -> LogSettings:
    """Return how to log.

    Raises:
        BadInput: Options exclude each other.
    """
    if (level is not None) + quiet + verbose > 1:
        raise BadInput("--log-level, --quiet and -v exclude each other.", hint="Use one of them.")
    own = logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO
    others = logging.INFO
    if level is not None:
        own = others = logging.getLevelNamesMapping()[level.upper()]
    return LogSettings(own, others, form == "json")


@contextmanager
def tuned() -> Iterator[None]:
    """Tune the garbage collector and thread switching for a worker while the block runs.

    A worker creates and drops a few tuples for each job, none in a cycle, so that frequent
    collections of young objects only cost time. A job passes three threads before its handler
    is called, so that shorter turns start it sooner next to a handler that computes.
    """
    thresholds, turn_s = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(max(thresholds[0], YOUNG_OBJECTS), *thresholds[1:])
    sys.setswitchinterval(min(turn_s, TURN_S_MAX))
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(turn_s)
