"""`dueline worker`: run jobs."""

import gc
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from dueline.api.worker_plan import CONCURRENCY, DRAIN_S
from dueline.cli.options import argument, option
from dueline.cli.session import session_of
from dueline.core.clock import SECOND_US
from dueline.core.durations import parse_span
from dueline.core.errors import BadInput
from dueline.core.text import indented

_SIGNALLED = 128

YOUNG_OBJECTS = 20_000
TURN_S_MAX = 0.001


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
    monitor: Annotated[
        bool, typer.Option("--monitor/--no-monitor", help="Take part in maintenance.")
    ] = True,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Log one line per job.")] = False,
) -> int:
    """Run jobs.

    Serves the queues of -q; by default `default`, the declared queues and those of the tasks. The
    first SIGTERM or Ctrl-C lets running jobs finish, a second one releases them at once. Logs go
    to stderr. Exits 0 after --burst, 143 after SIGTERM, 130 after Ctrl-C.

    Example: dueline worker tasks:app -q mail:4 --processes 2
    """
    drain_s = parse_span(drain) / SECOND_US
    serving = _slots(queue) if queue else None
    log_to_stderr(logging.INFO if verbose else logging.WARNING)
    application = session_of(context).application(app)
    with tuned():
        stopped_by = application.run_worker(
            serving,
            concurrency=concurrency,
            processes=processes,
            drain=drain_s,
            burst=burst,
            recycle_jobs=recycle_jobs,
            recycle_mb=recycle_mb,
            monitor=monitor,
        )
    return 0 if stopped_by is None else _SIGNALLED + stopped_by


def _slots(names: Sequence[str]) -> dict[str, int | None]:
    serving: dict[str, int | None] = {}
    for text in names:
        name, colon, slots = text.partition(":")
        if colon and not (slots.isascii() and slots.isdigit()):
            raise BadInput(f"{text!r} is not NAME or NAME:SLOTS.", hint="Use -q mail:16.")
        serving[name] = int(slots) if colon else None
    return serving


class _Formatter(logging.Formatter):
    """Indents tracebacks, so that the text of an exception cannot fake a log record."""

    def formatException(self, ei: Any) -> str:  # noqa: ANN401, N802  (the name is logging's)
        return indented(super().formatException(ei))


def log_to_stderr(level: int) -> None:
    """Log to stderr, one line per record with the time in UTC; tracebacks follow their line."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = _Formatter(
        "%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", datefmt="%Y-%m-%dT%H:%M:%S"
    )
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logger = logging.getLogger("dueline")
    logger.handlers = [handler]
    logger.setLevel(level)
    logger.propagate = False


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
