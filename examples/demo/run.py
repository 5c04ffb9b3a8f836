"""The demo that `make demo` runs: a real workload, a killed worker, and a proof.

Each file is a job that parses it. Two workers share the jobs, one of them is killed, and in
the end each file must be accounted for exactly once.
"""

import os
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dueline import DuelineError
from dueline import Job as Enqueued
from dueline.api.config import STORE_VARIABLE
from dueline.core.job import Job
from dueline.core.store import Migratable
from examples.demo import report
from examples.demo.facts import Story, collect
from examples.demo.files import FILES, Planned, plan
from examples.demo.tasks import MARKS_VARIABLE, QUEUE, Counts, Trouble, app, count
from examples.demo.workers import WorkerCommand, WorkerFault, running

FILES_VARIABLE = "FILES"
KILL_AFTER = 0.4
"""Share of ended jobs at which a worker is killed."""

KILL_TRIES = 20
KILL_PAUSE_S = 0.01

POLL_EVERY_S = 0.25
REST = 4
"""Slow polls (over a network) take at most one fifth of the time."""
STALLED_S = 120
"""Maximum seconds without the end of a job; then something is broken."""


def main() -> int:
    """Run the demo; return the exit code, 0 only if the proof holds."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through the finally below
    out, err = Console(), Console(stderr=True)
    folder = Path(tempfile.mkdtemp(prefix="dueline-demo-"))
    os.environ.setdefault(STORE_VARIABLE, f"sqlite:///{folder / 'demo.db'}")
    os.environ[MARKS_VARIABLE] = str(folder)
    is_proven = False
    try:
        planned = plan(folder, int(os.environ.get(FILES_VARIABLE, FILES)))
        err.print(f"{len(planned):,} Python files, one job each")
        story = work(planned, folder, err)
        is_proven = report.show(story, collect(story), out)
    except (DuelineError, WorkerFault) as fault:
        err.print(f"[red]{fault}")
    except KeyboardInterrupt:
        err.print("Interrupted.")
    finally:
        app.close()
        if is_proven:
            shutil.rmtree(folder)
        else:
            err.print(f"Worker logs are in {folder}", soft_wrap=True)
    return 0 if is_proven else 1


def work(planned: Sequence[Planned], folder: Path, err: Console) -> Story:
    """Run the jobs with two workers, and kill one of them.

    Raises: WorkerFault: a worker ended unexpectedly.
    """
    set_up()
    if app.store.scope == "process":
        raise WorkerFault(
            "Two workers cannot share a memory store. Set DUELINE_STORE to another store."
        )
    with progress(err) as bar, running(2, folder) as (victim, survivor):
        began_s = time.monotonic()
        placed = enqueue(planned)
        jobs = {job.id: one for job, one in placed.items()}
        line = bar.add_task("parsing", total=len(jobs))
        held: list[str] = []
        for waiting in watch(jobs):
            bar.update(line, completed=len(jobs) - len(waiting))
            survivor.check()
            if not held and len(waiting) < (1 - KILL_AFTER) * len(jobs):
                held = kill_soon(victim, jobs)
                if held:
                    bar.console.print(f"killed one of two workers while it held {len(held)} jobs")
        took_s = time.monotonic() - began_s
    return Story(jobs, list(placed), killed=victim, held=held, took_s=took_s)


def set_up() -> None:
    """Create the tables of a store that needs a migration."""
    if isinstance(app.store, Migratable):
        app.store.migrate()


def enqueue(planned: Sequence[Planned]) -> dict[Enqueued[Counts], Planned]:
    """Enqueue a job for each file, in bulk; return the files by job."""
    alike = defaultdict(list)
    for one in planned:
        alike[one.priority, one.after_s].append(one)
    jobs: dict[Enqueued[Counts], Planned] = {}
    for (priority, after_s), some in alike.items():
        calls = count.using(priority=priority, after=after_s)
        handles = calls.enqueue_many([(one.path, one.trouble) for one in some])
        jobs.update(zip(handles, some, strict=True))
    return jobs


def watch(jobs: Mapping[str, Planned]) -> Iterator[Sequence[Job]]:
    """Yield the jobs that have not ended, until all have.

    Raises: WorkerFault: no job ends any more.
    """
    left, changed_s = len(jobs), time.monotonic()
    while left:
        began_s = time.monotonic()
        waiting = waiting_of(jobs)
        took_s = time.monotonic() - began_s
        if len(waiting) != left:
            left, changed_s = len(waiting), time.monotonic()
        elif time.monotonic() - changed_s > STALLED_S:
            raise WorkerFault(f"No job ended within {STALLED_S} s; {left} jobs remain.")
        yield waiting
        time.sleep(max(POLL_EVERY_S, REST * took_s))


def waiting_of(jobs: Mapping[str, Planned]) -> Sequence[Job]:
    """Read the rows of these jobs; ended jobs have none."""
    return [job for job in app.queues.engine.jobs_of(QUEUE) if job.id.hex() in jobs]


def kill_soon(worker: WorkerCommand, jobs: Mapping[str, Planned]) -> list[str]:
    """Kill a worker as soon as it holds fit jobs, as `kill` does; give up after some tries.

    Few jobs end within some looks at a slow store, and between two of them it may hold none.
    """
    for _ in range(KILL_TRIES):
        if held := kill(worker, jobs):
            return held
        time.sleep(KILL_PAUSE_S)
    return []


def kill(worker: WorkerCommand, jobs: Mapping[str, Planned]) -> list[str]:
    """Kill a worker that holds jobs, unless one of them is chosen to fail or crash.

    Returns: the jobs that it held; empty if the worker was not killed.
    """
    worker.check()
    worker.freeze()
    held = [
        job.id.hex() for job in waiting_of(jobs) if job.is_claimed() and worker.owns(job.worker)
    ]
    if not held or any(jobs[job].trouble is not Trouble.NONE for job in held):
        worker.thaw()
        return []
    worker.kill()
    return held


def progress(err: Console) -> Progress:
    """Create the progress bar, which goes to standard error."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=err,
    )


if __name__ == "__main__":
    sys.exit(main())
