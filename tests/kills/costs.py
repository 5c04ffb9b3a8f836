"""`python -m tests.kills.costs`: jobs that take random units of semaphores, whoever is killed.

COST_KILLS, from the environment, says how many; COST_STORE names an empty store elsewhere than in a
file. Callers and workers are killed at random moments. No capacity is exceeded, all units return,
each job ends, and small jobs do not overtake one that takes a whole capacity for ever.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from dueline import Context, Dueline
from dueline.jobs.history import attempts
from dueline.limits import semaphore
from tests.kills.flows import DRAIN_S_MAX, QUEUE, TICK_S, Flows
from tests.kills.processes import start
from tests.kills.reporting import reported

KILLS = 15
LEASE_S = 3.0
"""Long enough that a busy machine does not let the permits of a live worker expire."""

CAPACITIES = {"slots": 5, "memory": 8}
COSTS = {"slots": (1, 1, 1, 1, 2, 3, 5), "memory": (1, 2, 3, 8)}
BOTH = 0.3
"""Share of the jobs that take memory too; all take slots."""

TENANTS = ("ants", "bees", "cats")
AHEAD = 40
RUN_S_MAX = 0.03
OVERTAKES_MAX = 100
"""Maximum number of smaller jobs that start while one waits that is the first of its lane."""

RETURNED_S_MAX = 30.0
"""Maximum time after the last job until all units have returned, those of killed workers too."""

FINAL = {"done", "dead"}


class Hold(NamedTuple):
    """What a handler holds: from when until when, by the monotonic clock."""

    job: str
    costs: Mapping[str, int]
    begin_ns: int
    end_ns: int


class Call(NamedTuple):
    """A job that its caller knows to be stored since then; jobs of one lane run in their order."""

    job: str
    lane: str
    costs: Mapping[str, int]
    stored_ns: int


class Report(NamedTuple):
    """What became of all jobs.

    peaks: the most units that were held at once. overtakes: the most smaller jobs that started
    while a job of a whole capacity was the first of its lane. faults: what must not be, in words.
    """

    kills: int
    jobs: int
    starts: int
    outcomes: Mapping[str, int]
    peaks: Mapping[str, int]
    large: int
    overtakes: int
    faults: Sequence[str]


def app_in(folder: Path) -> Dueline:
    """Make the application of all processes."""
    url = os.environ.get("COST_STORE") or f"sqlite:///{folder}/queue.db?synchronous=NORMAL"
    app = Dueline(url)
    app.queue(QUEUE, shards=1, lease=LEASE_S)
    for name, capacity in CAPACITIES.items():
        app.semaphore(name, capacity=capacity)
    calls = os.open(folder / "calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    @app.task(name="hold", queue=QUEUE)
    def hold(ctx: Context, costs: dict[str, int]) -> None:
        note(folder, "holds", "in", ctx.job_id.hex(), ctx.fence, json.dumps(costs))
        os.write(calls, b".")
        time.sleep(random.random() * RUN_S_MAX)
        note(folder, "holds", "out", ctx.job_id.hex(), ctx.fence)

    return app


def note(folder: Path, kind: str, *words: object) -> None:
    """Append a line with the time to a file of this process, with one write."""
    with (folder / f"{os.getpid()}.{kind}").open("ab", buffering=0) as file:
        file.write(" ".join(map(str, (time.monotonic_ns(), *words))).encode() + b"\n")


def call(folder: Path) -> None:
    """Enqueue jobs, some ahead of those that have ended; small ones never run out."""
    app, chance = app_in(folder), random.Random()
    hold = app.task_named("hold")
    while True:
        waiting = sum(1 for _ in app.queues.engine.jobs_of(QUEUE))
        for _ in range(AHEAD - waiting):
            names = CAPACITIES if chance.random() < BOTH else ["slots"]
            costs = {name: chance.choice(COSTS[name]) for name in names}
            tenant = chance.choice(TENANTS)
            job = hold.using(tenant=tenant, limits=costs).enqueue(costs)
            lane = "/".join([tenant, *(f"{name}{'+' * (costs[name] > 1)}" for name in names)])
            note(folder, "calls", job.id, lane, json.dumps(costs))
        time.sleep(TICK_S)


class Costs(Flows):
    """One run: processes that are killed and come again, until nothing is left to do."""

    ROLES: Sequence[str] = ("worker", "worker", "worker", "caller")

    def __init__(self, folder: Path, *, kills: int, seed: int) -> None:
        """Take an empty folder, how often to kill, and the seed of the choices."""
        super().__init__(folder, kills=kills, seed=seed)
        self._app = app_in(folder)
        self._killed_ns: dict[int, int] = {}
        self._leaks: list[str] = []

    def _start(self, role: str) -> "subprocess.Popen[bytes]":
        errors = self._folder / "stderr"
        return start("tests.kills.costs", role, str(self._folder), errors=errors)

    def _kill(self, process: "subprocess.Popen[bytes]") -> None:
        self._killed_ns[process.pid] = time.monotonic_ns()  # its handlers hold units until then
        super()._kill(process)

    def _drain(self) -> None:
        self._wait_for_jobs()
        give_up = time.monotonic() + RETURNED_S_MAX
        while held := self._held():
            if time.monotonic() > give_up:
                self._leaks = [f"units are held although no job is left: {held}"]
                return
            time.sleep(10 * TICK_S)
        self._app.task_named("hold").using(limits=CAPACITIES).enqueue(CAPACITIES)
        self._wait_for_jobs()

    def _wait_for_jobs(self) -> None:
        give_up = time.monotonic() + DRAIN_S_MAX
        while any(True for _ in self._app.queues.engine.jobs_of(QUEUE)):
            assert time.monotonic() < give_up, f"jobs are left: {self._errors()}"
            time.sleep(10 * TICK_S)

    def _held(self) -> Mapping[str, Any]:
        in_use = (semaphore.in_use(self._app.store, name) for name in CAPACITIES)
        return {name: usage for usages in in_use for name, usage in usages.items()}

    def _judge(self) -> Report:  # type: ignore[override]  # of its own
        outcomes: Counter[str] = Counter()
        ends: dict[str, list[str]] = defaultdict(list)
        for row in attempts(self._app.store, QUEUE, 1):
            outcomes[row.outcome] += 1
            if row.outcome in FINAL:
                ends[row.job].append(row.outcome)
        self._app.close()
        holds, calls = holds_in(self._folder, self._killed_ns), calls_in(self._folder)
        overtakes = overtakes_of(calls, holds)
        return Report(
            self._kills,
            len(calls),
            len(holds),
            dict(outcomes),
            {name: peak(holds, name) for name in CAPACITIES},
            len(overtakes),
            max(overtakes.values(), default=0),
            [*self._leaks, *faults_of(calls, holds, ends)],
        )


def holds_in(folder: Path, killed_ns: Mapping[int, int]) -> list[Hold]:
    """Read what handlers held; those of a killed process until it was killed."""
    each = (holds_of(path, killed_ns.get(int(path.stem), 0)) for path in folder.glob("*.holds"))
    return sorted(chain.from_iterable(each), key=lambda hold: hold.begin_ns)


def holds_of(path: Path, end_ns: int) -> list[Hold]:
    """Read what the handlers of one process held; until `end_ns` if it was killed then."""
    holds: list[Hold] = []
    running: dict[tuple[str, str], tuple[int, Mapping[str, int]]] = {}
    for line in path.read_text().splitlines():
        at_ns, word, job, fence, *costs = line.split(maxsplit=4)
        if word == "in":
            running[job, fence] = int(at_ns), json.loads(costs[0])
        else:
            begin_ns, taken = running.pop((job, fence))
            holds.append(Hold(job, taken, begin_ns, int(at_ns)))
    return holds + [
        Hold(job, taken, begin_ns, max(begin_ns + 1, end_ns))
        for (job, _), (begin_ns, taken) in running.items()
    ]


def calls_in(folder: Path) -> list[Call]:
    """Read which jobs callers stored; a call whose caller was killed may be missing."""
    lines = (line for path in folder.glob("*.calls") for line in path.read_text().splitlines())
    words = (line.split(maxsplit=3) for line in lines)
    calls = [Call(job, lane, json.loads(costs), int(at_ns)) for at_ns, job, lane, costs in words]
    return sorted(calls, key=lambda call: call.stored_ns)


def peak(holds: Sequence[Hold], name: str) -> int:
    """Return the most units of a limit that were held at once."""
    taken = [(hold, hold.costs[name]) for hold in holds if name in hold.costs]
    begins = [(hold.begin_ns, units) for hold, units in taken]
    ends = [(hold.end_ns, -units) for hold, units in taken]
    now = most = 0
    for _, units in sorted(begins + ends):
        now += units
        most = max(most, now)
    return most


def overtakes_of(calls: Sequence[Call], holds: Sequence[Hold]) -> dict[str, int]:
    """Return how many smaller jobs started while a job of all slots was the first of its lane."""
    starts_ns: dict[str, int] = {}
    for hold in holds:
        starts_ns.setdefault(hold.job, hold.begin_ns)
    small = [hold.begin_ns for hold in holds if hold.costs["slots"] < CAPACITIES["slots"]]
    first_ns: dict[str, int] = defaultdict(int)
    overtakes: dict[str, int] = {}
    for call in calls:
        if call.job not in starts_ns:
            continue
        start_ns, since_ns = starts_ns[call.job], max(call.stored_ns, first_ns[call.lane])
        if call.costs["slots"] == CAPACITIES["slots"]:
            overtakes[call.job] = sum(since_ns < at_ns < start_ns for at_ns in small)
        first_ns[call.lane] = max(first_ns[call.lane], start_ns)
    return overtakes


def faults_of(
    calls: Sequence[Call], holds: Sequence[Hold], ends: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Yield what must not be. ends: final outcomes by job."""
    for name, capacity in CAPACITIES.items():
        if (most := peak(holds, name)) > capacity:
            yield f"{most} units of {name} were held at once, of {capacity}"
    for job, overtakes in overtakes_of(calls, holds).items():
        if overtakes > OVERTAKES_MAX:
            yield f"{overtakes} smaller jobs overtook {job}"
    for stored in calls:
        if len(ends.get(stored.job, ())) != 1:
            yield f"{stored.job} has ended {len(ends.get(stored.job, ()))} times"


def main() -> int:
    """Run the loop once and print its report as JSON; return 1 if there is a fault."""
    if len(sys.argv) > 1:
        folder = Path(sys.argv[2])
        if sys.argv[1] == "worker":
            app_in(folder).run_worker([QUEUE], concurrency=4)
        else:
            call(folder)
        return 0
    kills = int(os.environ.get("COST_KILLS", KILLS))
    return reported(lambda folder, seed: Costs(folder, kills=kills, seed=seed).run())


if __name__ == "__main__":
    sys.exit(main())
