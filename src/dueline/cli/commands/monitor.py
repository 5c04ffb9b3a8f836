"""`dueline monitor`: run maintenance only."""

import threading
from typing import Annotated

import typer

from dueline.api.logs import LogSettings
from dueline.api.signals import SIGNALLED, passed_on
from dueline.cli.options import option
from dueline.cli.session import session_of
from dueline.core.durations import parse_span
from dueline.core.process_identity import worker_name


def monitor(
    context: typer.Context,
    *,
    interval: Annotated[
        str | None,
        option("DURATION", "Minimum time between runs of a task; 0s: its own."),
    ] = None,
) -> int:
    """Run maintenance tasks without running jobs.

    Takes part in the election of the maintenance leader, as every worker does unless it runs with
    --no-monitor. Jobs and schedules do not depend on maintenance. Without it, jobs of a dead worker
    run again only when their lease ends, and expired records are not deleted.

    --interval is a setting of the store, up to one hour: every leader runs each task that often at
    most, from its next heartbeat on. Jobs of dead workers and alerts are then noticed later.

    SIGTERM or Ctrl-C stops it. Exits 143 after SIGTERM, 130 after Ctrl-C.
    """
    from dueline.api.maintenance import make_maintenance_threads  # noqa: PLC0415  (no other command runs maintenance)

    interval_us = None if interval is None else parse_span(interval)
    LogSettings().show_own()
    LogSettings().show_others()
    is_over = threading.Event()
    with (
        passed_on(lambda _: is_over.set()) as received,
        session_of(context).queues(creates=True) as queues,
        make_maintenance_threads(queues, worker_name(), interval_us=interval_us),
    ):
        is_over.wait()
    return SIGNALLED + received[0]
