"""`python -m tests.kills.versions`: two versions side by side under kills.

The commit PREVIOUS makes the store; then producers and workers of both use it, and one process is
killed every second. `--store ADDRESS` names another store than a file of its
own, `--seconds` how long it goes on.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from dueline import Dueline
from dueline.coordination.worker_registry import names
from dueline.core.attempt import Attempt
from dueline.jobs.history import attempts
from tests.kills.processes import told_in

PREVIOUS = "9d67dac1b66f0add01472bc0c51c230bcaa77368"
"""Commit that the new version runs next to.

No version is released yet, so this is a development commit: the first whose stores every later
commit reads. It becomes the last released version.
"""

ROOT = Path(__file__).parent.parent.parent
PROGRAM = Path(__file__).with_name("mixed.py")
QUEUE, SHARDS, CAPACITY = "mixed", 2, 2  # as in mixed.py, which has no names to import here
KILL_EVERY_S = 1.0
SETTLED_S_MAX = 120.0
"""Maximum time for the jobs that are left, once nothing is added any more."""

FINAL = {"done", "dead"}
SECOND_US = 1_000_000


class NoPreviousError(Exception):
    """The commit of the previous version is not in this clone."""


@dataclass(slots=True)
class Process:
    """A role, under one of the versions, and the process that plays it now."""

    role: str
    processes: int
    source: Path
    running: "subprocess.Popen[bytes] | None" = None


class Lines(NamedTuple):
    """What the processes of a run wrote down.

    jobs: ids of acknowledged jobs; flows: ids of started workflows; holds: for each hold of a
    permit its first and last microsecond.
    """

    jobs: Sequence[str]
    flows: Sequence[str]
    holds: Sequence[tuple[int, int]]


def source_of(commit: str, folder: Path) -> Path:
    """Write the sources of a commit into a folder; return the one to import from.

    Raises:
      NoPreviousError: this clone does not have the commit.
    """
    packed = subprocess.run(
        ["git", "archive", commit, "src"], cwd=ROOT, capture_output=True, check=False
    )
    if packed.returncode:
        raise NoPreviousError(f"commit {commit[:7]} is not in this clone")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
    return folder / "src"


class Versions:
    """One run of both versions on one store."""

    def __init__(self, folder: Path, url: str, *, previous: Path, seed: int) -> None:
        """Take an empty folder, the store's address, the previous sources, and a seed."""
        self._folder, self._url = folder, url
        self._choice = random.Random(seed)
        self._killed: dict[int, int] = {}
        self.kills = 0
        old, new = previous, ROOT / "src"
        self._processes = [
            Process("worker", 0, old),
            Process("worker", 0, new),
            Process("worker", 1, new),
            Process("worker", 1, old),
            Process("producer", 0, old),
            Process("producer", 0, new),
        ]

    def run(self, seconds: float) -> Sequence[str]:
        """Run both for so many seconds, let the jobs end, and return what was wrong."""
        (self._folder / "finished").touch()
        (self._folder / "home").mkdir()
        self._migrate()
        try:
            self._start_all()
            self._strike(seconds)
            self._end_producers()
            app = Dueline(self._url)
            faults = self._settle(app)
            self._await_workers(app)
            faults += self._end_workers()
            app.close()
        finally:
            for process in self._processes:
                if process.running is not None:
                    process.running.kill()
                    process.running.wait()
        return faults

    def _environment(self, source: Path) -> dict[str, str]:
        places = {"PYTHONPATH": str(source), "DUELINE_MIXED_FOLDER": str(self._folder)}
        return os.environ | places | {"DUELINE_MIXED_STORE": self._url}

    def _migrate(self) -> None:
        """Have the previous version make the store."""
        subprocess.run(
            [sys.executable, "-P", "-m", "dueline", "--store", self._url, "migrate"],
            cwd=self._folder / "home",
            env=self._environment(self._processes[0].source),
            stdout=subprocess.DEVNULL,
            check=True,
        )

    def _start_all(self) -> None:
        """Start the previous version, and the new one once there is a queue (rule V3)."""
        is_new = [process.source == ROOT / "src" for process in self._processes]
        for process, new in zip(self._processes, is_new, strict=True):
            if not new:
                self._start(process)
        app = Dueline(self._url)
        end_s = time.monotonic() + SETTLED_S_MAX
        while not app.queues.engine.catalog.names():
            assert time.monotonic() < end_s, told_in(self._folder / "stderr")
            time.sleep(0.05)
        app.close()
        for process, new in zip(self._processes, is_new, strict=True):
            if new:
                self._start(process)

    def _start(self, process: Process) -> None:
        with (self._folder / "stderr").open("ab") as errors:
            process.running = subprocess.Popen(
                [sys.executable, "-P", str(PROGRAM), process.role, str(process.processes)],
                cwd=self._folder / "home",
                env=self._environment(process.source),
                stderr=errors,
                start_new_session=True,
            )

    def _strike(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            time.sleep(KILL_EVERY_S * self._choice.random() * 2)
            self._expect_all()
            process = self._choice.choice(self._processes)
            self._end(process, signal.SIGKILL)
            self.kills += 1
            self._start(process)

    def _expect_all(self) -> None:
        for process in self._processes:
            running = process.running
            if running is not None and (code := running.poll()) is not None:
                version = "previous" if process.source != ROOT / "src" else "new"
                raise AssertionError(
                    f"a {process.role} of the {version} version exited with {code}: "
                    f"{told_in(self._folder / 'stderr')}"
                )

    def _end(self, process: Process, number: int) -> int:
        """Signal a process, with its children where it is killed; return its exit code."""
        running = process.running
        assert running is not None
        if number == signal.SIGKILL:
            os.killpg(running.pid, number)
        else:
            running.send_signal(number)
        code = running.wait(60)
        self._killed[running.pid] = time.monotonic_ns() // 1000
        process.running = None
        return code

    def _end_producers(self) -> None:
        for process in self._processes:
            if process.role == "producer":
                self._end(process, signal.SIGKILL)

    def _await_workers(self, app: Dueline) -> None:
        """Wait until each worker has started: before it does, a signal ends it at once."""
        give_up_s = time.monotonic() + SETTLED_S_MAX
        while time.monotonic() < give_up_s:
            self._expect_all()
            begun = {name.split(":")[1] for name in names(app.store)}
            workers = [process.running for process in self._processes if process.role == "worker"]
            if all(str(worker.pid) in begun for worker in workers if worker is not None):
                return
            time.sleep(0.2)
        raise AssertionError(f"a worker did not start within {SETTLED_S_MAX:g} s")

    def _end_workers(self) -> list[str]:
        """Stop the workers as their operator would."""
        faults = []
        for process in self._processes:
            if process.role == "worker":
                code = self._end(process, signal.SIGTERM)
                if code:
                    faults.append(f"a worker ended with {code}")
        return faults

    def _settle(self, app: Dueline) -> list[str]:
        """Wait until all that was acknowledged has ended; return the faults."""
        lines = self._lines()
        give_up_s = time.monotonic() + SETTLED_S_MAX
        while True:
            rows = list(attempts(app.store, QUEUE, SHARDS))
            ended = {row.job for row in rows if row.outcome in FINAL}
            waiting = [job for job in lines.jobs if job not in ended]
            flows = [flow for flow in lines.flows if app.flow(flow).status not in FINAL]
            is_late = time.monotonic() > give_up_s
            if not waiting and not flows and (is_late or not list(_gaps(rows))):
                break
            if is_late:
                left = [f"{len(waiting)} jobs and {len(flows)} workflows have not ended"]
                return left + [f"{job}: {app.job(job).status}" for job in waiting[:5]]
            self._expect_all()
            time.sleep(0.2)
        return [*self._judge(app, lines, rows)]

    def _lines(self) -> Lines:
        """Read what all processes wrote down."""
        jobs: list[str] = []
        flows: list[str] = []
        holds: list[tuple[int, int]] = []
        for path in self._folder.glob("*.lines"):
            held: dict[str, list[int]] = defaultdict(list)
            for line in path.read_text().splitlines():
                at, word, *rest = line.split()
                if word in {"plain", "limited"}:
                    jobs += rest
                elif word == "flow":
                    flows += rest
                elif word == "in":
                    held[rest[0]].append(int(at))
                elif word == "out":
                    # A process that stood still for a lease may claim its own job again while the
                    # first handler, which holds no permit any more, has not ended.
                    began = held[rest[0]].pop()
                    if not held[rest[0]]:
                        holds.append((began, int(at)))
            # What a killed handler held it does not use any more: the last line it wrote is
            # before its end, so a hold of no length counts it once.
            holds += [(at, at + 1) for times in held.values() for at in times[:1]]
        return Lines(jobs, flows, holds)

    def _judge(self, app: Dueline, lines: Lines, rows: Sequence[Attempt]) -> Iterator[str]:
        """Yield what must not be, in words."""
        ended: dict[str, list[Attempt]] = defaultdict(list)
        for row in rows:
            if row.outcome in FINAL:
                ended[row.job].append(row)
        for job, ends in ended.items():
            if len(ends) != 1:
                yield f"{job} of {ends[0].task} ended {len(ends)} times"
        for flow_id in lines.flows:
            flow = app.flow(flow_id)
            width = int(flow.name)
            if flow.result(0) != sum(part + 11 for part in range(width)):
                yield f"workflow {flow_id} returned {flow.result(0)}"
        yield from _gaps(rows)
        ticks = [ends for ends in ended.values() if ends[0].task == "tick"]
        if not ticks:
            yield "the schedule never ran"
        if (most := highest(lines.holds)) > CAPACITY:
            yield f"{most} jobs held {CAPACITY} permits"
        self.counts = {
            "jobs": len(lines.jobs),
            "workflows": len(lines.flows),
            "ticks": len(ticks),
            "attempts": dict(Counter(row.outcome for row in rows)),
        }


def _gaps(rows: Sequence[Attempt]) -> Iterator[str]:
    """Yield where the schedule, of a run each second, has none that has ended, in words."""
    ticks = sorted(
        {
            row.job: row.due_us for row in rows if row.task == "tick" and row.outcome in FINAL
        }.values()
    )
    for run, (before, after) in enumerate(pairwise(ticks)):
        if after - before != SECOND_US:
            yield f"the schedule ran {(after - before) / 1e6} s after its run {run}"


def highest(spans: Sequence[tuple[int, int]]) -> int:
    """Return how many of the spans overlap at most."""
    now = most = 0
    for _, change in sorted([(at, 1) for at, _ in spans] + [(end, -1) for _, end in spans]):
        now += change
        most = max(most, now)
    return most


def main() -> int:
    """Run it once and print its report as JSON; return 1 where there is a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.kills.versions")
    parser.add_argument("--store", help="an address; by default a file of its own")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4)))
    chosen = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        folder, sources = Path(place, "run"), Path(place, "previous")
        folder.mkdir()
        sources.mkdir()
        try:
            previous = source_of(PREVIOUS, sources)
        except NoPreviousError as error:
            print(f"SKIPPED: no previous version to run: {error}")  # noqa: T201
            return 1 if os.environ.get("CI") else 0
        url = chosen.store or f"sqlite:///{folder}/queue.db"
        run = Versions(folder, url, previous=previous, seed=chosen.seed)
        faults = run.run(chosen.seconds)
    report = {
        "store": url.partition(":")[0],
        "seed": chosen.seed,
        "took_s": round(time.monotonic() - began, 1),
        "kills": run.kills,
        **getattr(run, "counts", {}),
        "faults": len(faults),
    }
    print(json.dumps(report, indent=2))  # noqa: T201
    if faults:
        print(json.dumps(faults[:20], indent=2))  # noqa: T201
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
