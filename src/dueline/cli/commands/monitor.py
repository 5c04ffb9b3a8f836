"""`dueline monitor`: run maintenance only."""

import threading

import typer

from dueline.api.logs import LogSettings
from dueline.api.signals import SIGNALLED, passed_on
from dueline.cli.session import session_of
from dueline.core.process_identity import worker_name


def monitor(context: typer.Context) -> int:
    """Run maintenance tasks without running jobs.

    Takes part in the election of the maintenance leader, as every worker does unless it runs with
    --no-monitor. Jobs and schedules do not depend on maintenance. Without it, jobs of a dead worker
    run again only when their lease ends, and expired records are not deleted.

    SIGTERM or Ctrl-C stops it. Exits 143 after SIGTERM, 130 after Ctrl-C.
    """
    from dueline.api.maintenance import make_maintenance_threads  # noqa: PLC0415  (no other command runs maintenance)

    LogSettings().show_own()
    LogSettings().show_others()
    is_over = threading.Event()
    with (
        passed_on(lambda _: is_over.set()) as received,
        session_of(context).queues(creates=True) as queues,
        make_maintenance_threads(queues, worker_name()),
    ):
        is_over.wait()
    return SIGNALLED + received[0]
