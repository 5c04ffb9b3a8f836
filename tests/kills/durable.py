"""`python -m tests.kills.durable`: each step of a durable function once, whoever is killed.

DURABLE_KILLS and DURABLE_STALLS, from the environment, say how often a worker is killed, or stopped
for longer than its lease beside the others; DURABLE_STORE names an empty store elsewhere than in a
file, and DURABLE_HISTORY what its queue records. Effects are counted, not records: each call of a
step writes a line before and after it. So do the jobs that functions call, and they write what they
return.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from dueline import CallFailed, Conflict, Context, Dueline, DurableContext, NotFound, Retry
from tests.kills.processes import start, told_in
from tests.kills.reporting import reported

QUEUE: Final = "sagas"
KILLS: Final = 15
STALLS: Final = 3
LEASE_S: Final = 2.0
TICK_S: Final = 0.01
EFFECTS_MAX: Final = 40
"""After so many effects, or fewer, somebody is struck."""

AHEAD: Final = 20
"""So many functions are started ahead of those that have ended, at each strike."""

STEPS: Final = 4
CHILDREN: Final = (2, 1, 1, 2, 1, 2)
"""So many steps the jobs have that a function calls; those with one are no functions."""

FAILS_ONE_IN: Final = 3
DRAIN_S_MAX: Final = 300.0


class Report(NamedTuple):
    """What became of all functions. faults: what must not be, in words."""

    kills: int
    stalls: int
    functions: int
    effects: int
    doubled: int
    faults: Sequence[str]


class SagaError(Exception):
    """The function ends with an error."""


def app_in(folder: Path) -> Dueline:
    """Make the application of all processes."""
    url = os.environ.get("DURABLE_STORE") or f"sqlite:///{folder}/queue.db?synchronous=NORMAL"
    app = Dueline(url)
    history: Any = os.environ.get("DURABLE_HISTORY", "attempts")
    app.queue(QUEUE, shards=1, lease=LEASE_S, history=history)
    effects = os.open(folder / "effects", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    chance = random.Random()

    def note(word: str, job: str, step: str) -> None:
        os.write(effects, f"{word} {job} {step} {os.getpid()}\n".encode())

    def effect(job: str, step: str) -> int:
        note("begins", job, step)
        time.sleep(chance.choice((0, 0, 0.002, 0.02)))
        note("ends", job, step)
        return chance.randrange(1_000_000)

    def give(child: Context, saga: str, number: int, value: int) -> int:
        note("gave", saga, f"{number} {child.job_id.hex()} {value}")
        if number % FAILS_ONE_IN == 0:
            raise SagaError
        return value

    @app.task(name="plain", queue=QUEUE, retry=Retry(attempts=1))
    def plain(child: Context, saga: str, number: int) -> int:
        return give(child, saga, number, effect(saga, f"child-{number}-0"))

    @app.durable(name="part", queue=QUEUE, retry=Retry(attempts=1))
    def part(child: DurableContext, saga: str, number: int) -> int:
        child.step(effect, saga, f"child-{number}-0", name="0")
        child.sleep(0.05)
        return give(child, saga, number, child.step(effect, saga, f"child-{number}-1", name="1"))

    @app.durable(name="saga", queue=QUEUE, retry=Retry(attempts=1))
    def saga(ctx: DurableContext, number: int) -> list[int]:
        job = ctx.job_id.hex()
        values: list[int] = []
        for step in range(STEPS):
            undo: Callable[[Any], Any] | None = None
            if step % 2 == 0:
                undo = lambda _, step=step: effect(job, f"undo-{step}")  # noqa: E731
            values.append(ctx.step(effect, job, f"step-{step}", name=f"step {step}", undo=undo))
            if step == 0:
                ctx.sleep(0.1)
            if step == 1:
                values.append(ctx.wait_signal("go", timeout=600, type=int))
                first = ctx.call(part, job, 1, wait=False)
        others = [part if steps > 1 else plain for steps in CHILDREN[2:]]
        ends = [first.result(), ctx.call(plain, job, 2)]
        ends += ctx.gather(
            [task.call(job, number) for number, task in enumerate(others, 3)],
            limit=2,
            return_exceptions=True,
        )
        words = ["dead" if isinstance(end, CallFailed) else end for end in ends]
        note("saw", job, "-".join(map(str, [*values, *words])))
        if number % FAILS_ONE_IN == 0:
            raise SagaError
        return values

    return app


def work(folder: Path, role: str) -> None:
    """Work until killed; or start functions and signal them, until so many are ahead."""
    app, number = app_in(folder), 0
    if role == "worker":
        app.run_worker([QUEUE], concurrency=8)
        return
    saga = app.task_named("saga")
    started: dict[str, Any] = {}
    while True:
        for _ in range(AHEAD - len(started)):
            number += 1
            job = saga.enqueue(number)
            started[job.id] = job
            with (folder / "started").open("a") as told:
                told.write(f"{job.id} {number}\n")
        for job in list(started.values()):
            if job.status in {"done", "dead"}:
                del started[job.id]
                continue
            with suppress(Conflict, NotFound):
                job.signal("go", 7, id="1")
        time.sleep(10 * TICK_S)


class Durables:
    """One run: processes that are killed and stalled, until nothing is left to do."""

    def __init__(self, folder: Path, *, kills: int, stalls: int, seed: int) -> None:
        """Take an empty folder, how often to kill and stall, and the seed of the choices."""
        self._folder = folder
        self._strikes = ["kill"] * kills + ["stall"] * stalls
        self._counts = kills, stalls
        self._choice = random.Random(seed)
        self._choice.shuffle(self._strikes)
        self._struck: set[int] = set()
        self._stalled: set[int] = set()
        self._app = app_in(folder)

    def run(self) -> Report:
        """Run it all, let it come to its end, and judge."""
        workers = [self._start("worker") for _ in range(3)]
        starter = self._start("starter")
        try:
            for strike in self._strikes:
                self._let_work(self._choice.randint(1, EFFECTS_MAX))
                place = self._choice.randrange(len(workers))
                self._struck.add(workers[place].pid)
                if strike == "stall":
                    self._stall(workers[place])
                    continue
                assert workers[place].poll() is None, "one ended unasked: " + self._errors()
                workers[place].kill()
                workers[place].wait()
                workers[place] = self._start("worker")
            self._let_end(starter)
        finally:
            for process in [*workers, starter]:
                process.kill()
                process.wait()
        return self._judge()

    def _stall(self, worker: "subprocess.Popen[bytes]") -> None:
        self._stalled.add(worker.pid)
        worker.send_signal(signal.SIGSTOP)
        time.sleep(LEASE_S * 1.5)  # so long is the stall
        worker.send_signal(signal.SIGCONT)

    def _lines(self) -> list[list[str]]:
        return [line.split() for line in (self._folder / "effects").read_text().splitlines()]

    def _let_work(self, effects: int) -> None:
        """Wait until so many effects have come."""
        path = self._folder / "effects"
        enough = path.stat().st_size + effects * 60
        give_up = time.monotonic() + DRAIN_S_MAX
        while path.stat().st_size < enough:
            assert time.monotonic() < give_up, f"nobody works: {self._errors()}"
            time.sleep(TICK_S)

    def _start(self, role: str) -> "subprocess.Popen[bytes]":
        errors = self._folder / "stderr"
        return start("tests.kills.durable", role, str(self._folder), errors=errors)

    def _errors(self) -> str:
        return told_in(self._folder / "stderr")

    def _started(self) -> dict[str, int]:
        """Return the functions whose start was acknowledged, and their numbers."""
        lines = (self._folder / "started").read_text().splitlines()
        return {job: int(number) for job, number in (line.split() for line in lines)}

    def _let_end(self, starter: "subprocess.Popen[bytes]") -> None:
        """Start no more, signal those that are left, and wait until all have ended."""
        starter.kill()
        starter.wait()
        give_up = time.monotonic() + DRAIN_S_MAX
        left = {row.id.hex() for row in self._app.queues.engine.jobs_of(QUEUE)}
        while left:
            assert time.monotonic() < give_up, f"functions do not end: {self._errors()}"
            for job_id in left:
                with suppress(Conflict, NotFound):
                    self._app.job(job_id).signal("go", 7, id="1")
            time.sleep(10 * TICK_S)
            left = {row.id.hex() for row in self._app.queues.engine.jobs_of(QUEUE)}

    def _judge(self) -> Report:
        lines, started = self._lines(), self._started()
        begins: dict[tuple[str, str], list[int]] = defaultdict(list)
        saw: dict[str, set[str]] = defaultdict(set)
        gave: dict[tuple[str, int], set[tuple[str, str]]] = defaultdict(set)
        for word, job, step, *terms in lines:
            if word == "begins":
                begins[job, step].append(int(terms[-1]))
            if word == "saw":
                saw[job].add(step)
            if word == "gave":
                gave[job, int(step)].add((terms[0], terms[1]))
        doubled = {key: pids for key, pids in begins.items() if len(pids) > 1}
        faults = [
            f"{job} {step} began in {pids}, and only {sorted(self._struck & set(pids))} were struck"
            for (job, step), pids in doubled.items()
            if len(set(pids) - self._struck) > 1 or self._has_repeated(pids)
        ]
        faults += [f"{job} saw {values}" for job, values in saw.items() if len(values) > 1]
        for job_id, number in started.items():
            status = self._app.job(job_id).status
            expected = "dead" if number % FAILS_ONE_IN == 0 else "done"
            if status != expected:
                faults.append(f"{job_id} is {status}, not {expected}")
            steps = [f"step-{step}" for step in range(STEPS)]
            steps += [f"child-{c}-{s}" for c, n in enumerate(CHILDREN, 1) for s in range(n)]
            missing = [step for step in steps if (job_id, step) not in begins]
            undone = sorted(
                int(step.removeprefix("undo-"))
                for job, step in begins
                if job == job_id and step.startswith("undo-")
            )
            if missing:
                faults.append(f"{job_id} did not run steps {missing}")
            if undone != ([0, 2] if expected == "dead" else []):
                faults.append(f"{job_id} is {status}, and steps {undone} were undone")
        faults += [
            fault
            for job, values in saw.items()
            for number, seen in enumerate(min(values).split("-")[-len(CHILDREN) :], 1)
            for fault in self._misread(f"{job} {number}", seen, number, gave[job, number])
        ]
        self._app.close()
        return Report(*self._counts, len(started), len(lines) // 2, len(doubled), faults)

    def _has_repeated(self, pids: Sequence[int]) -> bool:
        """Return whether a process began a step twice; one that stalled may claim the job again."""
        steady = [pid for pid in pids if pid not in self._stalled]
        return len(set(steady)) < len(steady)

    def _misread(
        self, call: str, seen: str, number: int, gave: set[tuple[str, str]]
    ) -> Iterator[str]:
        """Yield what is wrong with the end of a called job, as its function saw it."""
        jobs = {job for job, _ in gave}
        if len(jobs) != 1:
            yield f"{call} is {len(jobs)} jobs: {jobs}"
        for job in jobs:
            status = self._app.job(job).status
            expected = "dead" if number % FAILS_ONE_IN == 0 else "done"
            is_true = seen == "dead" if expected == "dead" else (job, seen) in gave
            if status != expected or not is_true:
                yield f"{call} is {status}, not {expected}, gave {gave}, and {seen} was seen"


def main() -> int:
    """Run the loop once and print its report as JSON; answer 1 where there is a fault."""
    if len(sys.argv) > 1:
        work(Path(sys.argv[2]), sys.argv[1])
        return 0
    kills = int(os.environ.get("DURABLE_KILLS", KILLS))
    stalls = int(os.environ.get("DURABLE_STALLS", STALLS))
    return reported(
        lambda folder, seed: Durables(folder, kills=kills, stalls=stalls, seed=seed).run()
    )


if __name__ == "__main__":
    sys.exit(main())
