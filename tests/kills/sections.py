"""`python -m tests.kills.sections`: no section that must not repeat begins twice, despite kills.

SECTION_KILLS, from the environment, says how many; SECTION_STORE names an empty store elsewhere
than in a file. Callers and workers are killed at random moments. A job ends as done after one
section, or as uncertain; an operator retries or settles some of the latter.
"""

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dueline import Context, Dueline, Retry
from dueline.admin.search import JobFilter, search
from tests.kills.flows import DRAIN_S_MAX, LEASE_S, QUEUE, TICK_S, Flows
from tests.kills.processes import start
from tests.kills.reporting import reported

KILLS = 15
FOLDER = "SECTION_FOLDER"
"""The variable that names the folder to workers with child processes."""

AHEAD = 40
RUN_S_MAX = 0.02
FAILS = 0.1
"""Share of the attempts that fail after their section: a retry then skips it."""

OPERATED = 0.3
"""Share of the uncertain jobs that an operator decides."""


class Report(NamedTuple):
    """What became of all jobs. faults: what must not be, in words."""

    kills: int
    jobs: int
    sections: int
    states: Mapping[str, int]
    retried: int
    settled: int
    faults: Sequence[str]


def app_in(folder: Path) -> Dueline:
    """Make the application of all processes."""
    url = os.environ.get("SECTION_STORE") or f"sqlite:///{folder}/queue.db?synchronous=NORMAL"
    app = Dueline(url)
    app.queue(QUEUE, shards=1, lease=LEASE_S, keep=86_400)
    calls = os.open(folder / "calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    @app.task(name="charge", queue=QUEUE, retry=Retry.fixed(0.05, attempts=20))
    def charge(ctx: Context) -> None:
        os.write(calls, b".")
        if not ctx.has_section_ended():
            with ctx.not_repeatable():
                note(folder, "begun", ctx.job_id.hex())
                time.sleep(random.random() * RUN_S_MAX)
        if random.random() < FAILS:
            raise ValueError("by chance")

    return app


def note(folder: Path, kind: str, word: str) -> None:
    """Append a word to a file of this process, with one write."""
    with (folder / f"{os.getpid()}.{kind}").open("ab", buffering=0) as file:
        file.write(f"{word}\n".encode())


def call(folder: Path) -> None:
    """Enqueue jobs, some ahead of those that have ended; decide some that are uncertain."""
    app, chance = app_in(folder), random.Random()
    charge, seen = app.task_named("charge"), set[str]()
    while True:
        waiting = sum(1 for _ in app.queues.engine.jobs_of(QUEUE))
        for _ in range(AHEAD - waiting):
            note(folder, "called", charge.enqueue().id)
        for row in search(app.queues.engine, JobFilter("uncertain"), limit=20).jobs:
            job = app.job(row.id)
            if job.id in seen or chance.random() > OPERATED:
                seen.add(job.id)
            elif chance.random() < 0.5:
                note(folder, "retried", job.id)  # before: it may be killed in between
                job.retry()
            else:
                job.settle()
                note(folder, "settled", job.id)
        time.sleep(TICK_S)


class Sections(Flows):
    """One run: processes that are killed and come again, until nothing is left to do."""

    ROLES = ("worker", "worker", "children", "caller")

    def __init__(self, folder: Path, *, kills: int, seed: int) -> None:
        """Take an empty folder, how often to kill, and the seed of the choices."""
        super().__init__(folder, kills=kills, seed=seed)
        self._app = app_in(folder)

    def _start(self, role: str) -> Any:  # noqa: ANN401  (a process)
        errors, folder = self._folder / "stderr", str(self._folder)
        if role == "children":
            settings = {FOLDER: folder}
            return start("tests.kills.section_worker", errors=errors, settings=settings)
        return start("tests.kills.sections", role, folder, errors=errors)

    def _drain(self) -> None:
        give_up = time.monotonic() + DRAIN_S_MAX
        while any(True for _ in self._app.queues.engine.jobs_of(QUEUE)):
            assert time.monotonic() < give_up, f"jobs are left: {self._errors()}"
            time.sleep(10 * TICK_S)

    def _judge(self) -> Report:  # type: ignore[override]  # of its own
        begun, retried = words_of(self._folder, "begun"), words_of(self._folder, "retried")
        called, settled = words_of(self._folder, "called"), words_of(self._folder, "settled")
        states = {job: state_of(self._app, job) for job in called}
        self._app.close()
        faults = [*faults_of(states, begun, retried, settled)]
        return Report(
            self._kills, len(called), begun.total(), dict(Counter(states.values())),
            retried.total(), settled.total(), faults,
        )  # fmt: skip


def state_of(app: Dueline, job_id: str) -> str:
    """Return how a job ended."""
    job = app.job(job_id)
    return "uncertain" if job.is_uncertain else job.status


def words_of(folder: Path, kind: str) -> Counter[str]:
    """Count the words that processes noted."""
    files = folder.glob(f"*.{kind}")
    return Counter(word for path in files for word in path.read_text().split())


def faults_of(
    states: Mapping[str, str],
    begun: Mapping[str, int],
    retried: Mapping[str, int],
    settled: Mapping[str, int],
) -> Iterator[str]:
    """Yield what must not be. begun, retried: how often, by job."""
    for job, state in states.items():
        sections, retries = begun.get(job, 0), retried.get(job, 0)
        if sections > 1 + retries:
            yield f"the section of {job} began {sections} times, and it was retried {retries} times"
        if state not in ("done", "uncertain"):
            yield f"{job} is {state}"
        if state == "done" and not sections and job not in settled:
            yield f"{job} is done without its section"


def main() -> int:
    """Run the loop once and print its report as JSON; return 1 if there is a fault."""
    if len(sys.argv) > 1:
        folder, role = Path(sys.argv[2]), sys.argv[1]
        if role == "caller":
            call(folder)
        else:
            app_in(folder).run_worker([QUEUE], concurrency=4)
        return 0
    kills = int(os.environ.get("SECTION_KILLS", KILLS))
    return reported(lambda folder, seed: Sections(folder, kills=kills, seed=seed).run())


if __name__ == "__main__":
    sys.exit(main())
