"""`dueline worker`: run jobs."""

import logging
import sys
import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from dueline.api.worker_plan import CONCURRENCY, DRAIN_S
from dueline.cli.process_tuning import tuned
from dueline.cli.session import session_of
from dueline.core.clock import SECOND_US
from dueline.core.durations import parse_span
from dueline.core.errors import BadInput
from dueline.core.text import indented

_SIGNALLED = 128


def worker(
    context: typer.Context,
    app: Annotated[
        str | None, typer.Argument(metavar="MODULE:APP", help="The application.")
    ] = None,
    *,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "-q", "--queue", metavar="NAME[:SLOTS]", help="A queue to serve; may be repeated."
        ),
    ] = None,
    concurrency: Annotated[
        int, typer.Option("-c", "--concurrency", metavar="N", help="Jobs run at once, in all.")
    ] = CONCURRENCY,
    processes: Annotated[
        int, typer.Option(metavar="N", help="Child processes that run them; 0: threads.")
    ] = 0,
    recycle_jobs: Annotated[
        int | None,
        typer.Option(metavar="N", help="Replace a child process after so many jobs."),
    ] = None,
    recycle_mb: Annotated[
        int | None,
        typer.Option(metavar="MIB", help="Replace one that holds so much memory."),
    ] = None,
    drain: Annotated[
        str, typer.Option(metavar="TIME", help="How long running jobs may go on at a stop.")
    ] = f"{DRAIN_S:g}s",
    burst: Annotated[bool, typer.Option("--burst", help="End when nothing is due.")] = False,
    monitor: Annotated[
        bool, typer.Option("--monitor/--no-monitor", help="Do chores, if elected.")
    ] = True,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Log a line a job.")] = False,
) -> int:
    """Run jobs until stopped; with --burst until nothing is due.

    SIGTERM or Ctrl-C stops it: the first lets running jobs end, a second gives them back at once.
    Exits 0 after a burst, 143 after SIGTERM, 130 after Ctrl-C.
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
            raise BadInput(f"{text!r} is not NAME or NAME:SLOTS.", hint="Write -q mail:16.")
        serving[name] = int(slots) if colon else None
    return serving


class _Formatter(logging.Formatter):
    """Indents tracebacks: what an exception says cannot pass for a record of this log."""

    def formatException(self, ei: Any) -> str:  # noqa: ANN401, N802  (the name is logging's)
        return indented(super().formatException(ei))


def log_to_stderr(level: int) -> None:
    """Log one line a record, in UTC; a failure's traceback follows its line."""
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
