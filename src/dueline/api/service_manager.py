"""Tells systemd how a worker is: a service of `Type=notify`, with a watchdog if it has one."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from dueline.worker.worker import LIVE_WITHIN_US, Worker


def notify(state: str) -> None:
    """Send a state such as READY=1 to the service manager, if one started this process."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        if address[0] == "@":  # an abstract socket
            address = f"\0{address[1:]}"
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(state.encode(), address)


@contextmanager
def reported(worker: Worker) -> Iterator[None]:
    """Report that a worker is ready, that its loop turns while the block runs, and its end."""
    is_over = threading.Event()
    every_s = _watchdog_s() / 2
    thread = threading.Thread(
        target=_report_turns, args=(worker, is_over, every_s), name="dueline-watchdog", daemon=True
    )
    notify("READY=1")
    if every_s:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        notify("STOPPING=1")


def _report_turns(worker: Worker, is_over: threading.Event, every_s: float) -> None:
    while not is_over.wait(every_s):
        if worker.turned_ago_us() < LIVE_WITHIN_US:
            notify("WATCHDOG=1")


def _watchdog_s() -> float:
    """Return the time after which the service manager restarts this process; 0 for never."""
    period, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID")
    is_mine = pid in (None, str(os.getpid())) and bool(os.environ.get("NOTIFY_SOCKET"))
    return int(period) / 1e6 if is_mine and period.isdecimal() else 0.0
