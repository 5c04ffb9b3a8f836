"""`python -m tests.kills.deploys`: old and new code of a durable function side by side.

Two workers are stopped and started again with the other code, one after the other, forth and back,
while functions run. None may die, each step runs once, and a function that has taken the new way is
ended by the new code. DEPLOYS_RUNS and DEPLOYS_SECONDS, from the environment, say how many
functions are started and in which time; DEPLOYS_STORE names an empty store that is not a file.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Final

from dueline import Dueline, DurableContext
from tests.kills.processes import start, told_in

QUEUE: Final = "orders"
RUNS: Final = 1_000
SECONDS: Final = 600
CODES: Final = ("old", "new")
DEPLOY_EVERY_S: Final = 7.0
TICK_S: Final = 0.05
_STOPPED: Final = (0, -signal.SIGTERM)
"""Codes of workers that were stopped, the second before they had begun."""

DRAIN_S_MAX: Final = 1_200.0
"""A stopped function is tried again every ten minutes at least."""


def app_in(folder: Path, code: str) -> Dueline:
    """Make the application of a process, with the old or the new code."""
    url = os.environ.get("DEPLOYS_STORE") or f"sqlite:///{folder}/queue.db?synchronous=NORMAL"
    app = Dueline(url)
    app.queue(QUEUE, shards=1)
    effects = os.open(folder / "effects", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def effect(job: str, step: str) -> None:
        os.write(effects, f"{job} {step}\n".encode())

    @app.durable(name="order", queue=QUEUE, version=code)
    def order(ctx: DurableContext, number: int) -> tuple[str, bool]:
        job, is_patched = ctx.job_id.hex(), False
        ctx.step(effect, job, "charge", name="charge")
        ctx.sleep(number % 13 / 2)
        if code == "new":
            is_patched = ctx.patched("check")
            if is_patched:
                ctx.step(effect, job, "check", name="check")
        ctx.sleep(number % 11 / 2)
        ctx.step(effect, job, "ship", name="ship")
        return code, is_patched

    return app


class Deploys:
    """One run: functions are started, and workers get the other code, until all have ended."""

    def __init__(self, folder: Path, *, runs: int, seconds: float) -> None:
        """Take an empty folder, the number of functions, and the time in which they start."""
        self._folder = folder
        self._runs, self._seconds = runs, seconds
        self._apps = [app_in(folder, code) for code in CODES]
        self._jobs: list[Any] = []
        self._stopped: set[bytes] = set()
        self._deploys = 0

    def run(self) -> dict[str, Any]:
        """Run it all, let it come to its end, and judge."""
        workers = [self._start(0), self._start(0)]
        began = deployed = time.monotonic()
        try:
            while not self._is_over(time.monotonic() - began):
                if time.monotonic() - deployed > DEPLOY_EVERY_S:
                    place, code = self._deploys % 2, self._deploys // 2 % 2
                    self._deploys += 1
                    assert workers[place].poll() is None, told_in(self._folder / "stderr")
                    workers[place].terminate()
                    answer = workers[place].wait()
                    assert answer in _STOPPED, told_in(self._folder / "stderr")
                    workers[place] = self._start(1 - code)
                    deployed = time.monotonic()
                time.sleep(TICK_S)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        return self._judge()

    def _start(self, code: int) -> "subprocess.Popen[bytes]":
        errors = self._folder / "stderr"
        return start("tests.kills.deploys", CODES[code], str(self._folder), errors=errors)

    def _is_over(self, elapsed_s: float) -> bool:
        """Start the functions whose time has come; return whether all have ended."""
        due = min(self._runs, int(elapsed_s / self._seconds * self._runs))
        while len(self._jobs) < due:
            number = len(self._jobs)
            self._jobs.append(self._apps[number % 2].task_named("order").enqueue(number))
        left = [row for row in self._apps[0].queues.engine.jobs_of(QUEUE) if not row.outcome]
        self._stopped |= {row.id for row in left if row.error.startswith("Stopped")}
        assert elapsed_s < self._seconds + DRAIN_S_MAX, f"{len(left)} functions do not end"
        return due == self._runs and not left

    def _judge(self) -> dict[str, Any]:
        effects: dict[str, list[str]] = defaultdict(list)
        for line in (self._folder / "effects").read_text().splitlines():
            job, step = line.split()
            effects[job].append(step)
        faults: list[str] = []
        ended: Counter[str] = Counter()
        for job in self._jobs:
            if job.status != "done":
                faults.append(f"{job.id} is {job.status}")
                continue
            code, is_patched = job.result()
            ended[f"{code} code, {'new' if is_patched else 'old'} way"] += 1
            way = ["charge", "check", "ship"] if is_patched else ["charge", "ship"]
            if effects[job.id] != way:
                faults.append(f"{job.id} was ended by {code} code after {effects[job.id]}")
        for app in self._apps:
            app.close()
        return {
            "runs": len(self._jobs),
            "deploys": self._deploys,
            "stopped meanwhile": len(self._stopped),
            "ended by": ended,
            "faults": faults,
        }


def main() -> int:
    """Run the loop once and print its report as JSON; answer 1 where there is a fault."""
    if len(sys.argv) > 1:
        app_in(Path(sys.argv[2]), sys.argv[1]).run_worker([QUEUE], concurrency=8)
        return 0
    runs = int(os.environ.get("DEPLOYS_RUNS", RUNS))
    seconds = float(os.environ.get("DEPLOYS_SECONDS", SECONDS))
    with tempfile.TemporaryDirectory() as folder:
        report = Deploys(Path(folder), runs=runs, seconds=seconds).run()
    print(json.dumps(report, indent=2))  # noqa: T201
    return 1 if report["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
