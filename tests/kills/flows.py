"""`python -m tests.kills.flows`: each step of a workflow once, whoever is killed.

FLOW_KILLS, from the environment, says how many; FLOW_STORE names an empty store elsewhere than in
a file. Starters and workers are killed at random moments.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dueline import Dueline, Flow, group, pipeline
from dueline.core.attempt import Attempt
from dueline.jobs.history import attempts
from dueline.workflows import records
from tests.kills.processes import start, told_in
from tests.kills.reporting import reported

QUEUE = "steps"
KILLS = 15
WIDEST = 12
LEASE_S = 1.0
TICK_S = 0.01
CALLS_MAX = 60
"""After so many calls of handlers, or fewer, somebody is killed."""

AHEAD = 20
"""So many workflows are started ahead of those that have ended, at each kill."""

DRAIN_S_MAX = 300.0


class Report(NamedTuple):
    """What became of all workflows. faults: what must not be, in words."""

    kills: int
    flows: int
    steps: int
    attempts: Counter[str]
    faults: Sequence[str]


def app_in(folder: Path) -> Dueline:
    """Make the application of all processes."""
    url = os.environ.get("FLOW_STORE") or f"sqlite:///{folder}/queue.db?synchronous=NORMAL"
    app = Dueline(url)
    app.queue(QUEUE, shards=1, lease=LEASE_S)
    calls = os.open(folder / "calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    @app.task(name="add", queue=QUEUE)
    def add(number: int, more: int) -> int:
        os.write(calls, b".")
        return number + more

    @app.task(name="total", queue=QUEUE)
    def total(numbers: list[int]) -> int:
        os.write(calls, b".")
        return sum(numbers)

    return app


def started(app: Dueline, width: int) -> Flow:
    """Start a workflow: a group of pipelines in a pipeline."""
    add, total = app.task_named("add"), app.task_named("total")
    each = (pipeline(add.step(number, 1), add.step(10)) for number in range(width))
    return app.start(pipeline(group(each), total.step(), add.step(1)), name=str(width))


def expected(width: int) -> int:
    """Tell what such a workflow gives."""
    return sum(number + 11 for number in range(width)) + 1


def work(folder: Path, role: str) -> None:
    """Work until killed; or start workflows, until so many are ahead."""
    app, chance = app_in(folder), random.Random()
    if role == "worker":
        app.run_worker([QUEUE], concurrency=4)
        return
    while True:
        left = sum(1 for flow, _ in app.flows() if flow.status != "done")
        for _ in range(AHEAD - left):
            flow = started(app, chance.randint(0, WIDEST))
            with (folder / "started").open("a") as told:
                told.write(f"{flow.id}\n")
        time.sleep(TICK_S)


class Flows:
    """One run: processes that are killed and come again, until nothing is left to do."""

    ROLES: Sequence[str] = ("worker", "worker", "starter")
    """Of the processes; the last one makes the work."""

    def __init__(self, folder: Path, *, kills: int, seed: int) -> None:
        """Take an empty folder, how often to kill, and the seed of the choices."""
        self._folder = folder
        self._kills = kills
        self._choice = random.Random(seed)
        self._app = app_in(folder)

    def run(self) -> Report:
        """Run it all, let it come to its end, and judge."""
        processes = [self._start(role) for role in self.ROLES]
        try:
            for _ in range(self._kills):
                self._let_work(self._choice.randint(1, CALLS_MAX))
                place = self._choice.randrange(len(processes))
                assert processes[place].poll() is None, "one ended unasked: " + self._errors()
                self._kill(processes[place])
                processes[place] = self._start(self.ROLES[place])
            self._kill(processes.pop())  # no more are started
            self._drain()
        finally:
            for process in processes:
                process.kill()
                process.wait()
        return self._judge()

    def _kill(self, process: "subprocess.Popen[bytes]") -> None:
        process.send_signal(signal.SIGKILL)
        process.wait()

    def _let_work(self, calls: int) -> None:
        """Wait until handlers were called so often."""
        path = self._folder / "calls"
        enough, give_up = path.stat().st_size + calls, time.monotonic() + DRAIN_S_MAX
        while path.stat().st_size < enough:
            assert time.monotonic() < give_up, f"nobody works: {self._errors()}"
            time.sleep(TICK_S)

    def _start(self, role: str) -> "subprocess.Popen[bytes]":
        errors = self._folder / "stderr"
        return start("tests.kills.flows", role, str(self._folder), errors=errors)

    def _errors(self) -> str:
        return told_in(self._folder / "stderr")

    def _drain(self) -> None:
        give_up = time.monotonic() + DRAIN_S_MAX
        acknowledged = self._acknowledged()
        while any(
            flow.status != "done" for flow, _ in self._app.flows() if flow.id in acknowledged
        ):
            assert time.monotonic() < give_up, f"the workflows do not end: {self._errors()}"
            time.sleep(10 * TICK_S)
        while any(True for _ in self._app.queues.engine.jobs_of(QUEUE)):  # effects come later
            assert time.monotonic() < give_up, f"jobs are left: {self._errors()}"
            time.sleep(10 * TICK_S)

    def _acknowledged(self) -> set[str]:
        """Return the workflows whose start returned.

        A store without transactions may have a part of one whose starter was killed.
        """
        return set((self._folder / "started").read_text().split())

    def _judge(self) -> Report:
        app = self._app
        rows = list(attempts(app.store, QUEUE, 1))
        ended: dict[str, list[Attempt]] = defaultdict(list)
        for row in rows:
            if row.outcome == "done":
                ended[row.job].append(row)
        faults: list[str] = []
        every = list(app.flows())
        acknowledged = self._acknowledged()
        flows = [flow for flow in every if flow[0].id in acknowledged or flow[0].status == "done"]
        steps = 0
        for flow, name in flows:
            if flow.result(0) != expected(int(name)):
                faults.append(f"{flow.id} gives {flow.result(0)}, not {expected(int(name))}")
            for number, node in enumerate(flow.look.layout.nodes):
                steps += 1
                job = flow.step(number).id
                if len(ended[job]) != 1:
                    faults.append(f"{job} has ended {len(ended[job])} times")
                    continue
                needs = [flow.step(need).id for need in set(node.needs())]
                last_us = max((run.ended_us for need in needs for run in ended[need]), default=0)
                early_us = last_us - ended[job][0].started_us
                if early_us > 0:
                    faults.append(f"{job} began {early_us} us before what it needs had ended")
        known = {
            records.job_of(flow.look.flow, step).hex()
            for flow, _ in every
            for step in range(len(flow.look.layout.nodes))
        }
        faults += [f"{job} is of no workflow" for job in {row.job for row in rows} - known]
        faults += [f"{row.id.hex()} is left" for row in app.queues.engine.jobs_of(QUEUE)]
        app.close()
        told = Counter(row.outcome for row in rows)
        return Report(self._kills, len(flows), steps, told, faults)


def main() -> int:
    """Run the loop once and print its report as JSON; answer 1 where there is a fault."""
    if len(sys.argv) > 1:
        work(Path(sys.argv[2]), sys.argv[1])
        return 0
    kills = int(os.environ.get("FLOW_KILLS", KILLS))
    return reported(lambda folder, seed: Flows(folder, kills=kills, seed=seed).run())


if __name__ == "__main__":
    sys.exit(main())
