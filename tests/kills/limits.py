"""`python -m tests.kills.limits`: handlers that misbehave, under random time limits.

A worker with threads, one with child processes and one with coroutines run handlers that log, share
a queue, hold connections, and swallow exceptions. Afterwards all slots are free or named as lost,
nothing is left held, and SIGTERM ends the workers. HANDLERS and SECONDS, from the environment, say
how many run in each worker and for how long; the long form is 200 and 600. LIMITS_STORE names an
empty store elsewhere than in a file.
"""

import importlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from dueline.coordination.worker_registry import live_workers
from tests.kills.processes import told_in

if TYPE_CHECKING:
    from dueline import Job

ROOT = Path(__file__).parent.parent.parent
SECONDS = 15.0
HANDLERS = 60
PROCESSES = 4
PROBES = 16
LIMIT_S = (0.02, 2.0)
RUN_S = (0.01, 3.0)
ENDLESS_S = 10_000.0
ENDLESS = 0.8
"""Share of handlers that only a limit ends."""

BLOCKED = 0.01
"""Share of handlers that wait in a library, where no limit interrupts them."""

ENDS_S = 30.0
"""How long all handlers may take to end before it counts which slots are named as lost."""

PATIENCE_S = 120.0
DRAIN_S = 10
EXIT_S_MAX = DRAIN_S + PATIENCE_S
TICK_S = 0.1
ENDED = {"done", "dead"}


class Report(NamedTuple):
    """What became of the handlers of one worker. lost: named ones; faults: what must not be."""

    mode: str
    handlers: int
    states: Mapping[str, int]
    lost: int
    exit_s: float
    faults: Sequence[str]


class Attack:
    """One worker, and what it is given."""

    def __init__(
        self, limited: ModuleType, mode: str, folder: Path, *, handlers: int, seed: int
    ) -> None:
        self._engine = limited.app.engine
        self._works = [*limited.WORK, "mixes"]
        self._loops = list(limited.LOOPS)
        self._mode = mode
        self._handlers = handlers
        self._choice = random.Random(seed)
        self._log = folder / f"{mode}.log"
        task = limited.in_loop if mode == "coroutines" else limited.in_thread
        self._task = task.using(queue=mode)
        self._probe = limited.what_is_held.using(queue=f"{mode}-probes")
        self._jobs: list[Job[Any]] = []
        self._open: list[Job[Any]] = []
        self._faults: list[str] = []
        self._lost_from_s = 0.0

    def start(self) -> None:
        """Start the worker."""
        queues = ["-q", f"{self._mode}:{self._handlers}", "-q", f"{self._mode}-probes:{PROBES}"]
        processes = ["--processes", str(PROCESSES)] if self._mode == "processes" else []
        slots = ["-c", str(self._handlers + PROBES)]
        with self._log.open("wb") as log:
            self._worker = subprocess.Popen(
                [
                    sys.executable, "-m", "dueline", "worker", "tests.kills.limited:app",
                    *queues, *slots, *processes, "--drain", f"{DRAIN_S}s",
                ],
                cwd=ROOT, stdout=log, stderr=log,
            )  # fmt: skip

    def feed(self) -> None:
        """Keep as many jobs open as there are slots."""
        self._open = [job for job in self._open if job.status not in ENDED]
        for _ in range(self._handlers - len(self._open)):
            job = self._enqueue()
            self._jobs.append(job)
            self._open.append(job)

    def _enqueue(self) -> "Job[Any]":
        choice = self._choice
        is_endless, is_blocked = choice.random() < ENDLESS, choice.random() < BLOCKED
        work = "blocks" if is_blocked else choice.choice(self._works)
        seconds = ENDLESS_S if is_endless else choice.uniform(*RUN_S)
        call = self._task.using(timeout=choice.uniform(*LIMIT_S))
        job: Job[Any] = call.enqueue(work, choice.choice(self._loops), seconds)
        return job

    def end(self) -> Report:
        """Let all handlers end, look at what is left, and tell the worker to end."""
        self._lost_from_s = time.monotonic() + ENDS_S
        self._wait(self._is_over, "slots are neither free nor named as lost")
        self._look_at_locks()
        lost = self._lost()
        began_s = time.monotonic()
        self._worker.send_signal(signal.SIGTERM)
        try:
            code = self._worker.wait(EXIT_S_MAX)
            if code != 128 + signal.SIGTERM:
                self._faults.append(f"the worker exited {code}: {told_in(self._log)}")
        except subprocess.TimeoutExpired:
            self._faults.append(f"SIGTERM did not end the worker in {EXIT_S_MAX:.0f} s")
        exit_s = time.monotonic() - began_s
        states = Counter(job.status for job in self._jobs if job.id not in lost)
        if states.keys() - ENDED:
            self._faults.append(f"jobs have not ended: {dict(states)}")
        return Report(self._mode, len(self._jobs), states, len(lost), exit_s, self._faults)

    def kill(self) -> None:
        """End the worker if it is still there."""
        self._worker.kill()
        self._worker.wait()

    def _is_over(self) -> bool:
        self._open = [job for job in self._open if job.status not in ENDED]
        if not self._open or time.monotonic() < self._lost_from_s:
            return not self._open
        lost = self._lost()
        return all(job.id in lost for job in self._open)

    def _lost(self) -> set[str]:
        workers = live_workers(self._engine)
        return {job for worker in workers for job, *_ in worker.lost}

    def _look_at_locks(self) -> None:
        probes = [self._probe.enqueue() for _ in range(PROBES)]
        self._wait(lambda: all(probe.status in ENDED for probe in probes), "no probe ends")
        for probe in probes:
            if probe.status == "done" and (held := probe.result(PATIENCE_S)):
                self._faults.append(f"left held: {held}")

    def _wait(self, is_so: Callable[[], bool], fault: str) -> None:
        give_up_s = time.monotonic() + PATIENCE_S
        while not is_so():
            if self._worker.poll() is not None:
                self._faults.append(f"the worker ended unasked: {told_in(self._log)}")
                return
            if time.monotonic() > give_up_s:
                self._faults.append(fault)
                return
            time.sleep(TICK_S)


def attack(folder: Path, *, seconds: float, handlers: int, seed: int) -> list[Report]:
    """Run all modes at the same time; return what was seen."""
    os.environ.setdefault("LIMITS_STORE", f"sqlite:///{folder}/queue.db")
    limited = importlib.import_module("tests.kills.limited")
    attacks = [
        Attack(limited, mode, folder, handlers=handlers, seed=seed) for mode in limited.MODES
    ]
    for attack in attacks:
        attack.start()
    try:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            for attack in attacks:
                attack.feed()
            time.sleep(TICK_S)
        return [attack.end() for attack in attacks]
    finally:
        for attack in attacks:
            attack.kill()


def main() -> int:
    """Run it once and print the reports as JSON; return 1 if there is a fault."""
    seed = int(os.environ.get("SEED") or random.randrange(2**32))
    seconds = float(os.environ.get("SECONDS") or SECONDS)
    handlers = int(os.environ.get("HANDLERS") or HANDLERS)
    with tempfile.TemporaryDirectory() as folder:
        reports = attack(Path(folder), seconds=seconds, handlers=handlers, seed=seed)
    limits = [report._asdict() for report in reports]
    sys.stdout.write(json.dumps({"seed": seed, "limits": limits}, indent=1) + "\n")
    return int(any(report.faults for report in reports))


if __name__ == "__main__":
    sys.exit(main())
