"""`python -m tests.kills.dependents`: jobs after those that they wait for, whoever is killed.

DEPENDENT_KILLS, from the environment, says how many; DEPENDENT_STORE names an empty store elsewhere
than in a file. Callers and workers are killed at random moments.
"""

import os
import random
import sys
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from dueline import Dueline, Retry, Unique
from dueline.core.attempt import Attempt
from dueline.jobs.history import attempts
from tests.kills.flows import DRAIN_S_MAX, LEASE_S, QUEUE, TICK_S, Flows
from tests.kills.processes import start
from tests.kills.reporting import reported

KILLS = 15
AHEAD = 60
WIDEST = 4
KEY = "one at a time"


class Report(NamedTuple):
    """What became of all jobs. faults: what must not be, in words."""

    kills: int
    jobs: int
    flows: int
    faults: list[str]


def app_in(folder: Path) -> Dueline:
    """Make the application of all processes."""
    url = os.environ.get("DEPENDENT_STORE") or f"sqlite:///{folder}/queue.db?synchronous=NORMAL"
    app = Dueline(url)
    app.queue(QUEUE, shards=1, lease=LEASE_S)
    calls = os.open(folder / "calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    @app.task(name="act", queue=QUEUE, retry=Retry.fixed(0.05, attempts=50))
    def act(fails: float) -> None:
        os.write(calls, b".")
        time.sleep(random.random() / 50)
        if random.random() < fails:
            raise ValueError("by chance")

    return app


def call(folder: Path) -> None:
    """Enqueue jobs, each after some of the last ones; start a workflow that others wait for."""
    app, chance = app_in(folder), random.Random()
    act = app.task_named("act")
    known: list[Any] = []
    while True:
        waiting = [job for job in known if job.status not in ("done", "failed")]
        if len(waiting) > AHEAD:
            time.sleep(TICK_S)
            continue
        several = chance.sample(known[-20:], min(len(known), chance.randint(0, WIDEST)))
        using = act.using(depends_on=several) if several else act
        job = using.enqueue(chance.choice([0, 0, 0.3]))
        flow = None
        if chance.random() < 0.1:
            unique = Unique(KEY, mode="existing")
            flow = app.start(act.step(0).then(act.step(0).alone()), unique=unique)
        with (folder / "started").open("a") as told:
            told.write(f"{job.id} {' '.join(need.id for need in several)}\n")
            if flow is not None:
                told.write(f"flow {flow.id}\n")
        known += [job] if flow is None else [job, flow]
        known = known[-200:]


class Dependents(Flows):
    """One run: processes that are killed and come again, until nothing is left to do."""

    def __init__(self, folder: Path, *, kills: int, seed: int) -> None:
        """Take an empty folder, how often to kill, and the seed of the choices."""
        super().__init__(folder, kills=kills, seed=seed)
        self._app = app_in(folder)

    def _start(self, role: str) -> Any:  # noqa: ANN401  (a process)
        errors = self._folder / "stderr"
        return start("tests.kills.dependents", role, str(self._folder), errors=errors)

    def _drain(self) -> None:
        give_up = time.monotonic() + DRAIN_S_MAX
        while any(True for _ in self._app.queues.engine.jobs_of(QUEUE)):
            assert time.monotonic() < give_up, f"jobs are left: {self._errors()}"
            time.sleep(10 * TICK_S)

    def _judge(self) -> Report:  # type: ignore[override]  # of its own
        app = self._app
        ended: dict[str, list[Attempt]] = defaultdict(list)
        for row in attempts(app.store, QUEUE, 1):
            if row.outcome == "done":
                ended[row.job].append(row)
        lines = (self._folder / "started").read_text().splitlines()
        told = [line.split() for line in lines if line.count(" ") and len(line.split()[-1]) == 32]
        told += [line.split() for line in lines if len(line.split()) == 1]
        flows = {words[1] for words in told if words[0] == "flow"}
        last_of = {flow: app.flow(flow).step(1).id for flow in flows}
        states = {flow: app.flow(flow).status for flow in flows}
        faults = [f"{flow} is {state}" for flow, state in states.items() if state != "done"]
        jobs = [words for words in told if words[0] != "flow"]
        for job, *awaited in jobs:
            if len(ended[job]) != 1:
                faults.append(f"{job} has ended {len(ended[job])} times")
                continue
            for other in awaited:
                before = ended[last_of.get(other, other)]
                early_us = before[0].ended_us - ended[job][0].started_us if before else 1
                if early_us > 0:
                    faults.append(f"{job} began {early_us} us before {other} had ended")
        spans = sorted(
            (ended[app.flow(flow).step(0).id][0].started_us, ended[last_of[flow]][0].ended_us)
            for flow in flows
        )
        for (_, end_us), (begin_us, _) in pairwise(spans):
            if begin_us < end_us:
                faults.append("two workflows had the key at once")
        app.close()
        return Report(self._kills, len(jobs), len(flows), faults)


def main() -> int:
    """Run the loop once and print its report as JSON; answer 1 where there is a fault."""
    if len(sys.argv) > 1:
        folder = Path(sys.argv[2])
        if sys.argv[1] == "worker":
            app_in(folder).run_worker([QUEUE], concurrency=4)
        else:
            call(folder)
        return 0
    kills = int(os.environ.get("DEPENDENT_KILLS", KILLS))
    return reported(lambda folder, seed: Dependents(folder, kills=kills, seed=seed).run())


if __name__ == "__main__":
    sys.exit(main())
