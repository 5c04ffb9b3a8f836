"""`python -m tests.kills.circuits`: a task that pauses itself, whatever is killed.

CIRCUIT_KILLS, from the environment, says how many; COST_STORE names an empty store elsewhere than
in a file. Workers and callers are killed at random moments, while the server that the task needs is
away and comes back. No two probes start within a period, each job ends, and the task resumes.
"""

import os
import random
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from dueline import Context, Dueline, Failures, Retry
from dueline.jobs import circuit_records
from dueline.jobs.history import attempts
from tests.kills.costs import AHEAD, FINAL, LEASE_S, Costs, note
from tests.kills.flows import DRAIN_S_MAX, QUEUE, TICK_S
from tests.kills.processes import start
from tests.kills.reporting import reported

KILLS = 15
TASK = "call"
RUN_S_MAX = 0.1
PAUSE_AFTER = Failures(3, of=6, probe_every=1, crashes=3)
BETWEEN_S = 0.5, 2.5
"""Time between two kills: a process starts, and jobs end."""

IS_AWAY = 0.6
"""Share of the time between two kills in which the server is away."""


class Report(NamedTuple):
    """What became of all jobs. opened: how often the task paused itself."""

    kills: int
    jobs: int
    attempts: Mapping[str, int]
    opened: int
    probes: int
    faults: Sequence[str]


def app_in(folder: Path) -> Dueline:
    """Make the application of all processes."""
    url = os.environ.get("COST_STORE") or f"sqlite:///{folder}/queue.db?synchronous=NORMAL"
    app = Dueline(url)
    app.queue(QUEUE, shards=1, lease=LEASE_S)

    @app.task(
        name=TASK, queue=QUEUE, retry=Retry(attempts=100, base=0.1, cap=1), pause_after=PAUSE_AFTER
    )
    def call(ctx: Context) -> None:
        circuit, _ = circuit_records.read(app.store, QUEUE, TASK)
        if circuit.probe == f"{ctx.job_id.hex()}/{ctx.fence}":
            note(folder, "probes", circuit.opened_us, circuit.probe_us)
        time.sleep(random.random() * RUN_S_MAX)
        if (folder / "away").exists():
            raise ConnectionError("the server is away")

    return app


def enqueue(folder: Path) -> None:
    """Enqueue jobs, some ahead of those that have ended."""
    app = app_in(folder)
    call = app.task_named(TASK)
    while True:
        waiting = sum(1 for _ in app.queues.engine.jobs_of(QUEUE))
        for _ in range(AHEAD - waiting):
            note(folder, "calls", call.enqueue().id)
        time.sleep(TICK_S)


class Circuits(Costs):
    """One run: processes that are killed and come again, until nothing is left to do."""

    def __init__(self, folder: Path, *, kills: int, seed: int) -> None:
        """Take an empty folder, how often to kill, and the seed of the choices."""
        super().__init__(folder, kills=kills, seed=seed)
        self._app = app_in(folder)
        self._away = folder / "away"

    def _start(self, role: str) -> "subprocess.Popen[bytes]":
        errors = self._folder / "stderr"
        return start("tests.kills.circuits", role, str(self._folder), errors=errors)

    def _let_work(self, calls: int) -> None:
        del calls  # a paused task makes none
        if self._choice.random() < IS_AWAY:
            self._away.touch()
        else:
            self._away.unlink(missing_ok=True)
        time.sleep(self._choice.uniform(*BETWEEN_S))

    def _drain(self) -> None:
        self._away.unlink(missing_ok=True)
        self._wait_for_jobs()
        job = self._app.task_named(TASK).enqueue()  # a probe, if the last one was killed
        note(self._folder, "calls", job.id)
        self._wait_for_jobs()
        give_up, catalog = time.monotonic() + DRAIN_S_MAX, self._app.queues.engine.catalog
        while catalog.settings(QUEUE).tripped_tasks and time.monotonic() < give_up:
            time.sleep(10 * TICK_S)
        if catalog.settings(QUEUE).tripped_tasks:
            self._leaks = ["the task stays paused"]

    def _judge(self) -> Report:  # type: ignore[override]  # of its own
        outcomes: Counter[str] = Counter()
        ends: dict[str, list[str]] = defaultdict(list)
        for row in attempts(self._app.store, QUEUE, 1):
            outcomes[row.outcome] += 1
            if row.outcome in FINAL:
                ends[row.job].append(row.outcome)
        self._app.close()
        jobs = [words[1] for words in self._noted("calls")]
        probes = [(int(opened_us), int(us)) for _, opened_us, us in self._noted("probes")]
        return Report(
            self._kills,
            len(jobs),
            dict(outcomes),
            len({opened_us for opened_us, _ in probes}),
            len(probes),
            [*self._leaks, *faults_of(jobs, probes, ends)],
        )

    def _noted(self, kind: str) -> list[list[str]]:
        files = sorted(self._folder.glob(f"*.{kind}"))
        return [line.split() for path in files for line in path.read_text().splitlines()]


def faults_of(
    jobs: Sequence[str], probes: Sequence[tuple[int, int]], ends: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Yield what must not be.

    Args:
        jobs: Ids of the jobs.
        probes: When the circuit of each probe opened, and when the next one may come.
        ends: Final outcomes by job.
    """
    ordered = sorted(probes)
    for (opened_us, first_us), (other_us, next_us) in pairwise(ordered):
        if opened_us == other_us and next_us - first_us < PAUSE_AFTER.probe_every_us:
            yield f"two probes start within {next_us - first_us} µs"
    for job in jobs:
        if len(ends.get(job, ())) != 1:
            yield f"{job} has ended {len(ends.get(job, ()))} times"


def main() -> int:
    """Run the loop once and print its report as JSON; return 1 if there is a fault."""
    if len(sys.argv) > 1:
        folder = Path(sys.argv[2])
        if sys.argv[1] == "worker":
            app_in(folder).run_worker([QUEUE], concurrency=4)
        else:
            enqueue(folder)
        return 0
    kills = int(os.environ.get("CIRCUIT_KILLS", KILLS))
    return reported(lambda folder, seed: Circuits(folder, kills=kills, seed=seed).run())


if __name__ == "__main__":
    sys.exit(main())
