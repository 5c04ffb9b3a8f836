"""`python -m tests.kills.products`: each product once, whoever is killed.

KILLS, from the environment, says how many. `--store postgres` runs on a server of its own, where
handlers write on connections of their own.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from dueline.api.application import Dueline
from dueline.jobs.history import attempts
from tests.kills.cluster import struck_cluster
from tests.kills.processes import children_of, start, told_in
from tests.kills.shop import FOLDER_VARIABLE, QUEUE, STAGES, STORE_VARIABLE
from tests.kills.writers import state_of

KILLS = 1000
BACKLOG = 150
"""There are at least so many jobs to do at each kill."""

CHILD_SHARE = 0.7
"""Of the kills of a worker with children: one of them alone."""

WORKERS = (0, 0, 2, 2)  # processes of each
PAUSE_S_MAX = 0.1
START_S_MAX = 300.0
TICK_S = 0.02
DRAIN_S_MAX = 300.0
END_S_MAX = 60.0


class Report(NamedTuple):
    """What became of all jobs.

    states: of the jobs. stages: how far a handler of the killed process was last.
    faults: what must not be, in words.
    """

    jobs: int
    kills: int
    states: Counter[str]
    stages: Counter[str]
    attempts: Counter[str]
    faults: Sequence[str]


class Products:
    """One run: workers that produce, are killed and come again, until nothing is left to do."""

    def __init__(self, folder: Path, *, kills: int, seed: int, url: str = "") -> None:
        """Take an empty folder, how often to kill, the seed, and an empty store elsewhere."""
        self._folder = folder
        self._kills = kills
        self._choice = random.Random(seed)
        self._stages: Counter[str] = Counter()
        self._url = url
        self._app = Dueline(url or f"sqlite:///{folder}/queue.db?synchronous=NORMAL")
        self._workers: list[subprocess.Popen[bytes]] = []
        self._jobs: list[str] = []

        @self._app.task(name="produce", queue=QUEUE)
        def produce(number: int) -> int:
            return number

        self._produce = produce

    def run(self) -> Report:
        """Run it all, drain the queue, and judge."""
        with self._app.transaction() as tx:
            tx.execute("create table products (number integer, job text, fence integer)")
        self._workers = [self._start(processes) for processes in WORKERS]
        try:
            for _ in range(self._kills):
                self._kill()
            self._drain()
            for worker in self._workers:
                worker.terminate()
            codes = {worker.wait(END_S_MAX) for worker in self._workers}
            # One that was started a moment ago does not handle the signal yet.
            assert codes <= {0, -signal.SIGTERM}, f"{codes}: {self._errors()}"
        finally:
            for worker in self._workers:
                worker.kill()
                worker.wait()
        return self._judge()

    def _enqueue(self) -> None:
        """Enqueue numbers in a transaction, beside one that is rolled back."""
        with self._app.transaction() as tx:
            jobs = "dueline.jobs" if self._url else "jobs"
            left = tx.execute(f"select count(*) from {jobs}")[0][0]  # noqa: S608
        if left >= BACKLOG:
            return
        first = len(self._jobs)
        numbers = [(number,) for number in range(first, first + BACKLOG)]
        try:
            with self._app.transaction() as tx:
                self._produce.using(tx=tx).enqueue_many([(-1,)] * 3)
                raise InterruptedError  # noqa: TRY301  (a block that changed its mind)
        except InterruptedError:
            with self._app.transaction() as tx:
                made = self._produce.using(tx=tx).enqueue_many(numbers)
        self._jobs += [job.id for job in made]

    def _start(self, processes: int) -> "subprocess.Popen[bytes]":
        settings = {FOLDER_VARIABLE: str(self._folder), STORE_VARIABLE: self._url}
        errors = self._folder / "stderr"
        return start("tests.kills.shop", str(processes), errors=errors, settings=settings)

    def _kill(self) -> None:
        """Kill a worker, or one of its children, at a random moment of its work."""
        place = self._at_work()
        worker = self._workers[place]
        time.sleep(self._choice.random() * PAUSE_S_MAX)
        children = children_of(worker.pid)
        loaded = [pid for pid in children if self._stage([pid]) != "idle"]
        if loaded and self._choice.random() < CHILD_SHARE:
            pid = self._choice.choice(loaded)  # three that never load end their worker
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:  # killed before, and gone by now
                self._kill()
                return
            self._stages[self._stage([pid])] += 1
            return
        worker.kill()
        worker.wait()
        self._stages[self._stage([worker.pid, *children])] += 1
        self._workers[place] = self._start(WORKERS[place])

    def _at_work(self) -> int:
        """Choose a worker whose handlers have begun to run; see that there is enough to do."""
        give_up = time.monotonic() + START_S_MAX
        while True:
            self._enqueue()
            busy = []
            for place, worker in enumerate(self._workers):
                assert worker.poll() is None, "a worker ended unasked: " + self._errors()
                if self._stage([worker.pid, *children_of(worker.pid)]) != "idle":
                    busy.append(place)
            if busy:
                return self._choice.choice(busy)
            assert time.monotonic() < give_up, "nobody begins: " + self._errors()
            time.sleep(TICK_S)

    def _stage(self, pids: Sequence[int]) -> str:
        """Tell how far the handlers of processes are, or were when they were killed."""
        paths = [path for pid in pids for path in self._folder.glob(f"{pid}.*.stage")]
        return STAGES[max([int(path.read_text() or 0) for path in paths] or [0])]

    def _drain(self) -> None:
        give_up = time.monotonic() + DRAIN_S_MAX
        queues = self._app.queues
        while any(True for _ in queues.engine.jobs_of(QUEUE)):
            assert time.monotonic() < give_up, "not drained: " + self._errors()
            time.sleep(TICK_S)

    def _errors(self) -> str:
        return told_in(self._folder / "stderr")

    def _judge(self) -> Report:
        app, jobs = self._app, self._jobs
        with app.transaction() as tx:
            rows = tx.execute("select number, job from products")
        made = Counter(job for _, job in rows)
        states = {job: state_of(app, job) for job in jobs}
        told: Counter[str] = Counter()
        done: Counter[str] = Counter()
        for attempt in attempts(app.store, QUEUE, 1):
            told[attempt.outcome] += 1
            done[attempt.job] += attempt.outcome == "done"
        faults = [f"{job} is {state}" for job, state in states.items() if state not in FINAL]
        faults += [f"{job} has {n} products" for job, n in made.items() if n > 1]
        faults += [f"{job} has a product of a rolled back job" for job in made.keys() - set(jobs)]
        for job, state in states.items():
            wanted = 1 if state == "done" else 0
            if made[job] != wanted:
                faults.append(f"{job} is {state} and has {made[job]} products")
            if done[job] != wanted:
                faults.append(f"{job} is {state} and history tells of {done[job]} ends")
        integrity = app.store.describe().get("integrity", "ok")
        if integrity != "ok":
            faults.append(f"the file is damaged: {integrity}")
        app.close()
        return Report(len(jobs), self._kills, Counter(states.values()), self._stages, told, faults)


FINAL = ("done", "dead")


def main() -> int:
    """Run it once and print what happened as JSON; answer 1 where there is a fault."""
    kills = int(os.environ.get("KILLS") or KILLS)
    seed = int.from_bytes(os.urandom(4))
    began = time.monotonic()
    parser = argparse.ArgumentParser(prog="python -m tests.kills.products")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        diaries, url = Path(folder, "diaries"), ""
        diaries.mkdir()
        if parser.parse_args().store == "postgres":
            url = stack.enter_context(struck_cluster(Path(folder, "server"), seed)).url
        report = Products(diaries, kills=kills, seed=seed, url=url).run()
    took_s = round(time.monotonic() - began, 1)
    said = report._asdict() | {"faults": len(report.faults), "examples": report.faults[:5]}
    print(json.dumps({"seed": seed, "took_s": took_s, **said}, indent=2))  # noqa: T201
    return 1 if report.faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
