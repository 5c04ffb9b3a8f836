"""The application that the loop kills.

Every process appends what it does to a file of its own, a line each, with one write; what it
asks of the store is written down by the store (recorder.py).
"""

import json
import os
import random
import time
from pathlib import Path
from typing import Any, cast

from checker.journal import Event, line_of
from dueline import Context, Dueline, Retry, StoreUnavailable
from dueline.api.connect import open_store
from dueline.core.call_options import read_options
from dueline.core.job import Job as Row
from dueline.core.store import Store
from simulation.recorder import RecordingStore
from tests.kills.jumps import JUMPS_VARIABLE, JumpingClock, mend_sleep, true_us
from tests.kills.strays import note_strays

FOLDER_VARIABLE = "DUELINE_KILLS_FOLDER"
STORE_VARIABLE = "DUELINE_KILLS_STORE"
"""The store's address; without it a file in the folder."""

QUEUE = "kills"
LEASE_S = 1.0
RUN_S_MAX = 0.004
RAISES_ONCE_EVERY, RAISES_ALWAYS_EVERY = 97, 499
"""Some handlers fail: numbers that these divide."""

TENANTS = ("", "", "ants", "bees", "cats")
PRIORITIES = (0, 0, 5, -5)
KEYS = 40
"""Unique keys, each of one living job at a time."""

AGAIN_S = 0.2
"""How long a process waits before it calls a store again that could not be had."""


def file_in(folder: Path) -> str:
    """Give the address of the queue in a folder."""
    return f"sqlite:///{folder}/queue.db"


FOLDER = Path(os.environ.get(FOLDER_VARIABLE, "."))

mend_sleep()
app = Dueline(
    os.environ.get(STORE_VARIABLE) or file_in(FOLDER),
    clock=JumpingClock(FOLDER) if os.environ.get(JUMPS_VARIABLE) else None,
)
app.queue(QUEUE, lease=LEASE_S)


class Diary:
    """A process's own file of events; opened at its first line."""

    def __init__(self) -> None:
        """Open nothing yet."""
        self._descriptor = -1

    def write(self, *events: Event) -> None:
        """Append events, a line each, with one write: what is killed leaves whole lines."""
        if self._descriptor < 0:
            path = FOLDER / f"{os.getpid()}.events"
            self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(self._descriptor, b"".join(map(line_of, events)))


diary = Diary()


def event_of(**told: Any) -> Event:  # noqa: ANN401  (the fields of an Event)
    """Make an event of this process, now."""
    return Event(true_us(), str(os.getpid()), **told)


def number_of(row: Row) -> int:
    """Read the number of a call off its row."""
    number: int = json.loads(row.body)[0]
    return number


def noted(row: Row) -> str:
    """Say what the judge has to know of a call: its number, and its unique key if it has one."""
    rule = read_options(row.opts).unique
    return f"{number_of(row)} {rule.key}" if rule else f"{number_of(row)}"


def record() -> None:
    """Have this process write down what it asks of the store, whose clock never jumps."""
    store = RecordingStore(open_store(app.url), diary, event_of, noted)
    app.__dict__["store"] = cast("Store", store)  # in the place of the one that it would open
    if app.url.startswith("cassandra:"):
        note_strays(FOLDER)


def wait_for_store() -> None:
    """Wait until the store answers: a process may be started while its node is down."""
    while True:
        try:
            app.queues.engine.catalog.settings(QUEUE)
            app.queues.engine.time.latest_us()
        except StoreUnavailable:
            time.sleep(AGAIN_S)
        else:
            return


@app.task(name="work", queue=QUEUE, retry=Retry(attempts=3, base=0.05, cap=0.2))
def work(context: Context, number: int) -> int:
    """Write down the start, take a little time."""
    start = event_of(type="ok", f="start", id=context.job_id.hex(), attempt=context.fence)
    diary.write(start)
    time.sleep(random.random() * RUN_S_MAX)
    is_first = context.attempt == 1
    if number % RAISES_ALWAYS_EVERY == 0 or (number % RAISES_ONCE_EVERY == 0 and is_first):
        raise RuntimeError(f"number {number} is one that fails")
    return number
