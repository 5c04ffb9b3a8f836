"""`dueline monitor`: do the chores, and nothing else."""

import logging
import signal

import typer

from dueline.cli.commands.worker import log_to_stderr
from dueline.cli.session import session_of
from dueline.core.process_identity import worker_name

_SIGNALLED = 128


def monitor(context: typer.Context) -> int:
    """Stand for the monitor's office, and do its chores until stopped.

    Every worker does so beside its jobs, unless it runs with --no-monitor; one of them all holds
    the office at a time. No job or schedule waits for the chores: without them what a dead worker
    holds is run again only when its lease ends, and nothing is deleted when its retention ends.

    SIGTERM or Ctrl-C stops it. Exits 143 after SIGTERM, 130 after Ctrl-C.
    """
    from dueline.api.maintenance import make_maintenance_threads  # noqa: PLC0415  (no other command does chores)

    log_to_stderr(logging.INFO)
    stops = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    with (
        session_of(context).queues() as queues,
        make_maintenance_threads(queues, worker_name()),
    ):
        received = signal.sigwait(stops)
    return _SIGNALLED + received
