"""`python -m tests.kills.needs`: jobs that need something of their worker, whatever is killed.

NEED_KILLS, from the environment, says how many; COST_STORE names an empty store elsewhere than in a
file. Workers and callers are killed at random moments. No worker runs more than it has or what it
does not fit, and each job ends.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from dueline.jobs.history import attempts
from tests.kills.costs import AHEAD, FINAL, Costs, Hold, app_in, calls_in, holds_of, note, peak
from tests.kills.flows import QUEUE, TICK_S
from tests.kills.processes import start
from tests.kills.reporting import reported

KILLS = 15
GPUS = 3
SIDES = ("a", "b")
"""Labels of the workers, which are their roles, too."""


class Report(NamedTuple):
    """What became of all jobs. peaks: the most units that each worker used, largest last."""

    kills: int
    jobs: int
    starts: int
    peaks: Sequence[int]
    faults: Sequence[str]


def needs_of(chance: random.Random) -> dict[str, int]:
    """Choose what a job needs; labels are numbers of SIDES, as the lines of handlers have it."""
    needs = {"gpu": chance.choice((1, 1, 1, 2, GPUS))}
    return needs if chance.random() < 0.5 else {**needs, "side": chance.randrange(len(SIDES))}


def call(folder: Path) -> None:
    """Enqueue jobs, some ahead of those that have ended."""
    app, chance = app_in(folder), random.Random()
    hold = app.task_named("hold")
    while True:
        waiting = sum(1 for _ in app.queues.engine.jobs_of(QUEUE))
        for _ in range(AHEAD - waiting):
            needs = needs_of(chance)
            asked: dict[str, int | str] = {**needs}
            if "side" in needs:
                asked["side"] = SIDES[needs["side"]]
            job = hold.using(needs=asked).enqueue(needs)
            note(folder, "calls", job.id, "all", json.dumps(needs))
        time.sleep(TICK_S)


class Needs(Costs):
    """One run: processes that are killed and come again, until nothing is left to do."""

    ROLES = (*SIDES, *SIDES, "caller")

    def __init__(self, folder: Path, *, kills: int, seed: int) -> None:
        """Take an empty folder, how often to kill, and the seed of the choices."""
        super().__init__(folder, kills=kills, seed=seed)
        self._sides: dict[int, str] = {}

    def _start(self, role: str) -> "subprocess.Popen[bytes]":
        errors = self._folder / "stderr"
        process = start("tests.kills.needs", role, str(self._folder), errors=errors)
        self._sides[process.pid] = role
        return process

    def _drain(self) -> None:
        self._wait_for_jobs()

    def _judge(self) -> Report:  # type: ignore[override]  # of its own
        ends: dict[str, list[str]] = defaultdict(list)
        for row in attempts(self._app.store, QUEUE, 1):
            if row.outcome in FINAL:
                ends[row.job].append(row.outcome)
        self._app.close()
        holds = {
            int(path.stem): holds_of(path, self._killed_ns.get(int(path.stem), 0))
            for path in self._folder.glob("*.holds")
        }
        jobs = [stored.job for stored in calls_in(self._folder)]
        return Report(
            self._kills,
            len(jobs),
            sum(map(len, holds.values())),
            sorted(peak(sorted(mine), "gpu") for mine in holds.values()),
            list(faults_of(jobs, holds, self._sides, ends)),
        )


def faults_of(
    jobs: Sequence[str],
    holds: Mapping[int, Sequence[Hold]],
    sides: Mapping[int, str],
    ends: Mapping[str, Sequence[str]],
) -> Iterator[str]:
    """Yield what must not be. holds, sides: by process. ends: final outcomes by job."""
    for process, mine in holds.items():
        if (most := peak(mine, "gpu")) > GPUS:
            yield f"{process} used {most} units at once, of {GPUS}"
        for hold in mine:
            if "side" in hold.costs and SIDES[hold.costs["side"]] != sides[process]:
                yield f"{process} ran {hold.job}, which it does not fit"
    for job in jobs:
        if len(ends.get(job, ())) != 1:
            yield f"{job} has ended {len(ends.get(job, ()))} times"


def main() -> int:
    """Run the loop once and print its report as JSON; return 1 if there is a fault."""
    if len(sys.argv) > 1:
        role, folder = sys.argv[1], Path(sys.argv[2])
        if role in SIDES:
            app_in(folder).run_worker([QUEUE], concurrency=4, has={"gpu": GPUS, "side": role})
        else:
            call(folder)
        return 0
    kills = int(os.environ.get("NEED_KILLS", KILLS))
    return reported(lambda folder, seed: Needs(folder, kills=kills, seed=seed).run())


if __name__ == "__main__":
    sys.exit(main())
