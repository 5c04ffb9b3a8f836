"""`python -m tests.kills.requeues`: jobs that are moved between two queues, whatever is killed.

REQUEUE_KILLS, from the environment, says how many; REQUEUE_STORE names an empty store elsewhere
than in a file. The caller, the mover and workers of both queues are killed at random moments. Each
acknowledged job ends once, and afterwards each unique key is free in both queues.
"""

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from dueline import Conflict, Dueline, Duplicate, Retry
from dueline.core.errors import EnqueueUnknown, StoreUnavailable
from dueline.jobs.history import attempts
from tests.kills.flows import LEASE_S, TICK_S, Flows
from tests.kills.orders import lines_of
from tests.kills.processes import start
from tests.kills.reporting import reported

KILLS = 6
AHEAD = 40
KEYS = 10
QUEUES = ("a", "b")
DRAIN_S_MAX = 60


class Report(NamedTuple):
    """What became of all jobs. moved: events of moves. faults: what must not be, in words."""

    kills: int
    jobs: int
    moved: int
    faults: list[str]


def app_in(folder: Path) -> Dueline:
    """Make the application of all processes."""
    url = os.environ.get("REQUEUE_STORE") or f"sqlite:///{folder}/queue.db?synchronous=NORMAL"
    app = Dueline(url)
    for name, shards in zip(QUEUES, (1, 2), strict=True):
        app.queue(name, lease=LEASE_S, shards=shards)
    calls = os.open(folder / "calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    @app.task(name="book", queue="a", retry=Retry.fixed(0.02, attempts=50))
    def book(number: int) -> None:
        os.write(calls, b".")
        time.sleep(random.random() / 500)

    return app


def call(folder: Path) -> None:
    """Enqueue jobs, plain ones and some with a key, and note those that are acknowledged."""
    app, chance = app_in(folder), random.Random()
    book = app.task_named("book")
    while True:
        left = sum(1 for name in QUEUES for _ in app.queues.engine.jobs_of(name))
        for number in range(AHEAD - left):
            key = f"k{chance.randrange(KEYS)}" if chance.random() < 0.4 else None
            later = chance.choice((0, 0, 0.05))
            options: dict[str, Any] = {"unique": key} if key else {}
            with suppress(Duplicate, EnqueueUnknown, StoreUnavailable, Conflict):
                job = book.using(queue=chance.choice(QUEUES), after=later, **options).enqueue(
                    number
                )
                with (folder / "stored").open("a") as stored:
                    stored.write(f"{job.id}\n")
        time.sleep(TICK_S)


def move(folder: Path) -> None:
    """Move jobs from each queue to the other one."""
    app = app_in(folder)
    while True:
        for source, target in (QUEUES, QUEUES[::-1]):
            with suppress(Conflict, StoreUnavailable):
                app.move_jobs(f"queue:{source}", to=target)
            time.sleep(TICK_S)


class Requeues(Flows):
    """One run: processes that are killed and come again, until nothing is left to do."""

    ROLES = (*QUEUES, "mover", "mover", "caller")

    def __init__(self, folder: Path, *, kills: int, seed: int) -> None:
        """Take an empty folder, how often to kill, and the seed of the choices."""
        super().__init__(folder, kills=kills, seed=seed)
        self._app = app_in(folder)

    def _start(self, role: str) -> Any:  # noqa: ANN401  (a process)
        errors = self._folder / "stderr"
        return start("tests.kills.requeues", role, str(self._folder), errors=errors)

    def _drain(self) -> None:
        give_up = time.monotonic() + DRAIN_S_MAX
        while any(True for name in QUEUES for _ in self._app.queues.engine.jobs_of(name)):
            assert time.monotonic() < give_up, f"jobs are left: {self._errors()}"
            time.sleep(10 * TICK_S)

    def _judge(self) -> Report:  # type: ignore[override]  # of its own
        app = self._app
        events = [
            event for name in QUEUES for event in attempts(app.store, name, 2, everything=True)
        ]
        ends = Counter(event.job for event in events if event.outcome == "done")
        stored = lines_of(self._folder / "stored")
        faults = list(faults_of(stored, ends))
        for key in (f"k{number}" for number in range(KEYS)):
            for name in QUEUES:
                try:
                    app.task_named("book").using(queue=name, unique=key).enqueue(0).cancel()
                except Duplicate as error:
                    faults.append(f"{key} is still held in {name}: {error}")
        moved = sum("moved from" in event.error for event in events)
        app.close()
        return Report(self._kills, len(stored), moved, faults)


def faults_of(stored: list[str], ends: Counter[str]) -> Iterator[str]:
    """Yield what must not be: of acknowledged jobs, and how often each job was done."""
    for job in stored:
        if not ends[job]:
            yield f"{job} is lost"
    for job, count in ends.items():
        if count > 1:
            yield f"{job} has ended {count} times"


def main() -> int:
    """Run the loop once and print its report as JSON; return 1 if there is a fault."""
    if len(sys.argv) > 1:
        role, folder = sys.argv[1], Path(sys.argv[2])
        if role in QUEUES:
            app_in(folder).run_worker([role], concurrency=2)
        elif role == "mover":
            move(folder)
        else:
            call(folder)
        return 0
    kills = int(os.environ.get("REQUEUE_KILLS", KILLS))
    return reported(lambda folder, seed: Requeues(folder, kills=kills, seed=seed).run())


if __name__ == "__main__":
    sys.exit(main())
