"""`python -m tests.kills.orders`: jobs of many order keys, whoever is killed.

ORDER_KILLS, ORDER_JOBS and ORDER_KEYS, from the environment, say how many; ORDER_STORE names an
empty store elsewhere than in a file. The caller and workers are killed at random moments. A file to
which all handlers append says in which order jobs began and ended, by no clock.
"""

import os
import random
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from dueline import Dueline, Retry
from dueline.core.errors import EnqueueUnknown, StoreUnavailable
from tests.kills.flows import DRAIN_S_MAX, LEASE_S, QUEUE, TICK_S, Flows
from tests.kills.processes import start
from tests.kills.reporting import reported

KILLS = 10
JOBS = 400
KEYS = 20
AHEAD = 10
"""Number of jobs of a key that are stored ahead, on average."""


class Report(NamedTuple):
    """What became of all jobs. faults: what must not be, in words."""

    kills: int
    jobs: int
    keys: int
    attempts: int
    faults: list[str]


def asked(name: str, default: int) -> int:
    """Return a number from the environment."""
    return int(os.environ.get(f"ORDER_{name}", default))


def app_in(folder: Path) -> Dueline:
    """Make the application of all processes."""
    url = os.environ.get("ORDER_STORE") or f"sqlite:///{folder}/queue.db?synchronous=NORMAL"
    app = Dueline(url)
    app.queue(QUEUE, shards=1, lease=LEASE_S)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    calls = os.open(folder / "calls", flags, 0o600)
    log = os.open(folder / "log", flags, 0o600)

    @app.task(name="book", queue=QUEUE, retry=Retry.fixed(0.02, attempts=50), order_key="{key}")
    def book(key: str, number: int, fails: float) -> None:
        os.write(calls, b".")
        os.write(log, f"began {key} {number}\n".encode())
        time.sleep(random.random() / 500)
        if random.random() < fails:
            raise ValueError("by chance")
        os.write(log, f"ended {key} {number}\n".encode())

    return app


def call(folder: Path) -> None:
    """Enqueue jobs one by one and several at once, and note those that are acknowledged."""
    app, chance = app_in(folder), random.Random()
    book, jobs, keys = app.task_named("book"), asked("JOBS", JOBS), asked("KEYS", KEYS)
    path = folder / "stored"
    number = max([int(line.split()[1]) for line in lines_of(path)], default=-1) + 1000
    while len(lines_of(path)) < jobs:
        done = sum(line.startswith("ended") for line in lines_of(folder / "log"))
        if len(lines_of(path)) - done > AHEAD * keys:
            time.sleep(10 * TICK_S)
            continue
        for _ in range(keys):
            several = []
            for _ in range(chance.choice([1, 1, 1, 4])):
                several.append((f"k{chance.randrange(keys)}", number, chance.choice([0, 0, 0.3])))
                number += 1
            try:
                if len(several) == 1:
                    book.enqueue(*several[0])
                else:
                    book.enqueue_many(several)
            except EnqueueUnknown as error:
                app.queues.enqueue_again(error.jobs)
            except StoreUnavailable:
                continue
            with path.open("a") as told:
                told.write("".join(f"{key} {number}\n" for key, number, _ in several))


def lines_of(path: Path) -> list[str]:
    """Return the whole lines of a file that may not exist."""
    text = path.read_text() if path.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


class Orders(Flows):
    """One run: processes that are killed and come again, until nothing is left to do."""

    def __init__(self, folder: Path, *, kills: int, seed: int) -> None:
        """Take an empty folder, how often to kill, and the seed of the choices."""
        super().__init__(folder, kills=kills, seed=seed)
        self._app = app_in(folder)

    def _start(self, role: str) -> Any:  # noqa: ANN401  (a process)
        errors = self._folder / "stderr"
        return start("tests.kills.orders", role, str(self._folder), errors=errors)

    def _let_work(self, calls: int) -> None:
        enough = asked("JOBS", JOBS)  # no more calls are certain
        left = enough - (self._folder / "calls").stat().st_size
        super()._let_work(min(left, 1 + calls * enough // (self._kills * 40)))

    def _drain(self) -> None:
        give_up = time.monotonic() + DRAIN_S_MAX
        while any(True for _ in self._app.queues.engine.jobs_of(QUEUE)):
            assert time.monotonic() < give_up, f"jobs are left: {self._errors()}"
            time.sleep(10 * TICK_S)

    def _judge(self) -> Report:  # type: ignore[override]  # of its own
        began: dict[str, list[int]] = defaultdict(list)
        ended, faults, attempts = set[int](), list[str](), 0
        for what, key, text in map(str.split, lines_of(self._folder / "log")):
            number = int(text)
            if what == "ended":
                ended.add(number)
                continue
            attempts += 1
            order = began[key]
            if order and order[-1] == number:
                continue
            if order and order[-1] not in ended:
                faults.append(f"{number} of {key} began before {order[-1]} had ended")
            if number in order:
                faults.append(f"{number} of {key} was passed by {order[-1]}")
            order.append(number)
        stored: dict[str, list[int]] = defaultdict(list)
        for key, text in map(str.split, lines_of(self._folder / "stored")):
            stored[key].append(int(text))
        for key, numbers in stored.items():
            known = set(numbers)
            if [number for number in began[key] if number in known] != numbers:
                faults.append(f"{key} ran in another order than it was stored, or lost a job")
        faults += [f"{number} never ended" for numbers in began.values() for number in numbers
                   if number not in ended]  # fmt: skip
        self._app.close()
        return Report(self._kills, sum(map(len, began.values())), len(began), attempts, faults)


def main() -> int:
    """Run the loop once and print its report as JSON; answer 1 where there is a fault."""
    if len(sys.argv) > 1:
        folder = Path(sys.argv[2])
        if sys.argv[1] == "worker":
            app_in(folder).run_worker([QUEUE], concurrency=4)
        else:
            call(folder)
            time.sleep(DRAIN_S_MAX)  # until it is killed
        return 0
    kills = asked("KILLS", KILLS)
    return reported(lambda folder, seed: Orders(folder, kills=kills, seed=seed).run())


if __name__ == "__main__":
    sys.exit(main())
