"""`python -m tests.kills.moves`: stores that move to and fro, whoever is killed.

MOVE_KILLS, from the environment, says how often the mover is killed; MOVE_STORES names two empty
stores elsewhere than in files. Callers and workers of both stores are killed, too. The judge is
`dueline move --audit`, which is run after each move while both stores are in use; in the end faults
are planted, and it must find each.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from dueline import Dueline, EnqueueUnknown, Retry, StoreMoved, StoreUnavailable, Unique
from dueline.core.attempt import Outcome
from dueline.core.clock import DAY_US
from dueline.core.errors import DuelineError
from dueline.core.job import JobId
from dueline.core.pagination import parts_of
from dueline.core.store import Put
from dueline.jobs import results
from dueline.jobs.history import attempts, row_of_enqueue
from dueline.jobs.queue import EnqueueRequest
from tests.kills.flows import DRAIN_S_MAX, LEASE_S, QUEUE, TICK_S
from tests.kills.processes import start, told_in
from tests.kills.reporting import reported

KILLS = 10
KEYS = 5
AHEAD = 300
"""Number of jobs that wait, so that a move has something to do."""

FAILED = 6
"""Exit code of an audit that has found something."""

WHOLE = 0.1
"""Share of the movers that are not killed, so that there are several moves."""

_REST_S = 0.2


class Report(NamedTuple):
    """What became of all jobs. planted: what the audit said of each. faults: what must not be."""

    kills: int
    moves: int
    jobs: int
    audited: Mapping[str, int]
    planted: Mapping[str, int]
    faults: list[str]


def urls_in(folder: Path) -> list[str]:
    """Return the addresses of both stores."""
    given = os.environ.get("MOVE_STORES")
    return given.split() if given else [f"sqlite:///{folder}/{name}.db" for name in ("a", "b")]


def app_at(url: str) -> Dueline:
    """Make the application of all processes, on one of the stores."""
    app = Dueline(url)
    app.queue(QUEUE, shards=1, lease=LEASE_S, history="all")

    @app.task(name="work", queue=QUEUE, retry=Retry.fixed(0.2, attempts=100))
    def work(number: int, fails: float) -> int:
        time.sleep(random.random() / 100)
        if random.random() < fails:
            raise ValueError("by chance")
        return number

    return app


def call(folder: Path) -> None:
    """Enqueue jobs, in whichever store takes them."""
    chance, urls, at = random.Random(), urls_in(folder), 0
    called = (folder / f"{os.getpid()}.called").open("ab", buffering=0)
    while True:
        app = app_at(urls[at])
        try:
            _call(app, chance, lambda job: called.write(f"{job}\n".encode()))
        except (StoreMoved, StoreUnavailable):
            at = 1 - at
            time.sleep(_REST_S)
        finally:
            app.close()


def _call(app: Dueline, chance: random.Random, note: Callable[[str], object]) -> None:
    work = app.task_named("work")
    while True:
        waiting = sum(1 for _ in app.queues.engine.jobs_of(QUEUE))
        for _ in range(AHEAD - waiting):
            kind, key = chance.randrange(4), f"key-{chance.randrange(KEYS)}"
            options: Any = {"after": chance.random() * 20} if kind else {"order_key": key}
            if kind == 1:
                options["unique"] = Unique(key, mode="existing")
            with suppress(EnqueueUnknown):
                note(work.using(**options).enqueue(chance.randrange(1000), 0.1).id)
        time.sleep(TICK_S)


def run_worker(url: str) -> None:
    """Run what is due in a store, whenever it is open."""
    while True:
        with suppress(DuelineError):
            app = app_at(url)
            try:
                app.run_worker([QUEUE], concurrency=4)
            finally:
                app.close()
        time.sleep(_REST_S)


class Moves:
    """One run: movers that are killed and come again, with callers and workers of both stores."""

    def __init__(self, folder: Path, *, kills: int, seed: int) -> None:
        """Take an empty folder, how often to kill, and the seed of the choices."""
        self._folder = folder
        self._kills = self._wanted = kills
        self._choice = random.Random(seed)
        self._urls = urls_in(folder)
        self._faults: list[str] = []
        self._audited: Mapping[str, int] = {}

    def run(self) -> Report:
        """Run it all, let it come to its end, and judge."""
        roles = [("worker", "0"), ("worker", "1"), ("caller",), ("caller",)]
        app_at(self._urls[0]).close()
        processes = [self._start(*role) for role in roles]
        moves = 0
        try:
            while self._kills > 0:
                moves += self._moved(moves)
                place = self._choice.randrange(len(roles))
                if self._choice.random() < 0.3:
                    self._kill(processes[place])
                    processes[place] = self._start(*roles[place])
            moves += self._moved(moves)  # ends what the last one that was killed began
            for process in processes[2:]:  # no more are called
                self._kill(process)
            app = Dueline(self._urls[moves % 2])
            self._drain(app)
        finally:
            for process in processes:
                self._kill(process)
        self._audit(moves - 1)
        called = {job for path in self._folder.glob("*.called") for job in path.read_text().split()}
        self._faults += [f"{job} is {state}" for job, state in unfinished(app, called)]
        audited, planted = self._audited, dict(self._plant(app, moves - 1))
        app.close()
        return Report(self._wanted, moves, len(called), audited, planted, self._faults)

    def _moved(self, moves: int) -> bool:
        """Run the mover, or kill it after a while; return whether it came to its end."""
        mover = self._mover(moves)
        if self._kills and self._choice.random() > WHOLE:
            with suppress(subprocess.TimeoutExpired):
                return self._has_passed(mover.wait(self._choice.uniform(0.4, 3)))
            self._kill(mover)
            self._kills -= 1
            return False
        return self._has_passed(mover.wait(DRAIN_S_MAX))

    def _mover(self, moves: int) -> "subprocess.Popen[bytes]":
        old, new = self._urls[moves % 2], self._urls[1 - moves % 2]
        with (self._folder / "said").open("wb") as said, (self._folder / "stderr").open("ab") as no:
            return subprocess.Popen(
                [sys.executable, "-m", "dueline", "-o", "json", "move", "--from", old,
                 "--to", new, "--audit"], stdout=said, stderr=no,
            )  # fmt: skip

    def _has_passed(self, code: int) -> bool:
        said = (self._folder / "said").read_text()
        if code not in (0, FAILED):
            raise AssertionError(f"a mover exited with {code}: {told_in(self._folder / 'stderr')}")
        data = json.loads(said)["data"]
        self._audited = {place["place"]: place["jobs"] for place in data["places"]}
        self._faults += [f"{finding['job_id']} {finding['words']}" for finding in data["findings"]]
        return True

    def _audit(self, moves: int) -> bool:
        """Return whether an audit of the last move finds nothing more."""
        known = len(self._faults)
        self._has_passed(self._mover(moves).wait(DRAIN_S_MAX))
        return len(self._faults) == known

    def _start(self, *role: str) -> "subprocess.Popen[bytes]":
        errors = self._folder / "stderr"
        return start("tests.kills.moves", str(self._folder), *role, errors=errors)

    def _kill(self, process: "subprocess.Popen[bytes]") -> None:
        process.kill()
        process.wait()

    def _drain(self, app: Dueline) -> None:
        give_up = time.monotonic() + DRAIN_S_MAX
        while any(True for _ in app.queues.engine.jobs_of(QUEUE)):
            assert time.monotonic() < give_up, "jobs are left: " + told_in(self._folder / "stderr")
            time.sleep(10 * TICK_S)

    def _plant(self, new: Dueline, moves: int) -> Iterator[tuple[str, int]]:
        """Plant faults, and yield how often the audit finds each; it must find all."""
        old, real = Dueline(self._urls[moves % 2]), self._faults
        for plant, words in PLANTED.items():
            plant(old, new)
            self._faults = []
            self._audit(moves)
            seen = sum(words in fault for fault in self._faults)
            real += [] if seen else [f"{plant.__name__} was not noticed"]
            yield plant.__name__, seen
        self._faults = real
        old.close()


def lose(old: Dueline, new: Dueline) -> None:
    """Have a job in the history of the old store that is nowhere."""
    (row,) = new.queues.rows(NEW)
    old.store.append([row_of_enqueue(row, with_arguments=False)])


def double(old: Dueline, new: Dueline) -> None:
    """Have a job in both stores."""
    rows = new.queues.rows(NEW)
    for app in (old, new):
        app.store.add(rows)


def change(old: Dueline, new: Dueline) -> None:
    """Change the result of a job that ended in the old store."""
    done = (event.job for event in attempts(old.store, QUEUE, 1) if event.outcome == "done")
    kept = results.read_many(old.store, [JobId(bytes.fromhex(job)) for job in done])
    job_id, outcome = next(iter(kept.items()))
    other = Outcome("done", outcome.ended_us, value="-1")
    partition, (put,) = results.keep(job_id, other, keep_us=DAY_US)
    assert isinstance(put, Put)
    new.store.commit(partition, [put._replace(at_us=None)])


NEW: Final = EnqueueRequest(QUEUE, "work", 0, [b"[1,0]"], job_ids=[JobId(bytes(range(16)))])
PLANTED: Final[Mapping[Callable[[Dueline, Dueline], None], str]] = {
    lose: "has not ended and has no row",
    double: "has a row in both stores",
    change: "has another end in the new store",
}
"""What is planted, and how the audit words it."""


def unfinished(app: Dueline, jobs: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield jobs that are not done, with their states."""
    for part in parts_of(jobs, 500):
        for job in map(app.job, part):
            if (state := job.status) != "done":
                yield job.id, state


def main() -> int:
    """Run the loop once and print its report as JSON; return 1 if there is a fault."""
    if len(sys.argv) > 1:
        folder, role, *store = Path(sys.argv[1]), *sys.argv[2:]
        if role == "caller":
            call(folder)
        else:
            run_worker(urls_in(folder)[int(store[0])])
        return 0
    kills = int(os.environ.get("MOVE_KILLS", KILLS))
    return reported(lambda folder, seed: Moves(folder, kills=kills, seed=seed).run())


if __name__ == "__main__":
    sys.exit(main())
