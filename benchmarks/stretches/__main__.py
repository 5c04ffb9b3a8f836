"""Compare claims by stretch with claims by row: in SQL, by calls of the store, and by a worker.

`python -m benchmarks.stretches --jobs 100000 --rounds 5` prints the median processor time and the
bytes written for each job; both kinds take turns in each round.
"""

import argparse
import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from benchmarks import ours
from benchmarks.stretches import raw
from benchmarks.stretches.store import StretchStore
from dueline import Dueline
from dueline.api.connect import EXTRA_STORES
from dueline.core.clock import SystemClock
from dueline.core.job import Token
from dueline.core.store import Drop, Lease, Want
from dueline.stores.sqlite.store import SqliteStore

STORES: Final[dict[str, type[SqliteStore]]] = {"rows": SqliteStore, "stretches": StretchStore}


class Cost(NamedTuple):
    """Of one job: processor time in microseconds, and bytes written to files."""

    cpu_us: float
    written: float


Costs = dict[str, list[Cost]]


def _written() -> int:
    """Return how many bytes this process has written, to the log and to the file."""
    lines = Path("/proc/self/io").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar"))


@contextmanager
def _counted(costs: Costs, kind: str, jobs: int) -> Iterator[None]:
    gc.collect()
    written, began_s = _written(), time.process_time()
    yield
    took_us = (time.process_time() - began_s) * 1e6
    costs.setdefault(kind, []).append(Cost(took_us / jobs, (_written() - written) / jobs))


def _in_sql(costs: Costs, kind: str, folder: Path, asked: argparse.Namespace) -> None:
    database = raw.open_file(folder / "raw.db", asked.jobs, asked.synchronous)
    with _counted(costs, kind, asked.jobs):
        assert raw.KINDS[kind](database, asked.batch) == asked.jobs
    database.close()


def _filled(kind: str, folder: Path, asked: argparse.Namespace) -> Dueline:
    url = f"{kind}:{folder}"
    EXTRA_STORES[url] = lambda clock: STORES[kind](
        folder / "ours.db", clock=clock, synchronous=asked.synchronous
    )
    app, task = ours.open_app(url, history=asked.history)
    ours.enqueue(task, asked.jobs, "x" * 100)
    return app


def _by_calls(costs: Costs, kind: str, folder: Path, asked: argparse.Namespace) -> None:
    app = _filled(kind, folder, asked)
    store, left = app.queues.engine.store, asked.jobs
    page = store.lanes(ours.QUEUE, 0, until_bucket=2**40, after=None, limit=100)
    wants = [Want(pointer.lane, asked.batch) for pointer in page.pointers]
    with _counted(costs, kind, asked.jobs):
        while left:
            found = store.claim(
                wants,
                limit=asked.batch,
                lease=Lease(SystemClock().wall_us(), raw.LEASE_US, "w", Token(os.urandom(16))),
            )
            assert all(store.settle([Drop(job) for job in found.jobs]))
            left -= len(found.jobs)
    app.close()


def _by_worker(costs: Costs, kind: str, folder: Path, asked: argparse.Namespace) -> None:
    app = _filled(kind, folder, asked)
    with _counted(costs, kind, asked.jobs):
        ours.drain(app)
    assert ours.is_empty(app)
    app.close()


LEVELS: Final[dict[str, Callable[[Costs, str, Path, argparse.Namespace], None]]] = {
    "sql": _in_sql,
    "calls": _by_calls,
    "worker": _by_worker,
}


def main() -> None:
    """Measure the levels asked for, and print a row for each kind."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stretches", description=__doc__)
    parser.add_argument("levels", nargs="*", default=list(LEVELS), help="sql, calls, worker")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument(
        "--batch", type=int, default=1000, help="jobs of a claim; not of the worker"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--synchronous", default="NORMAL")
    parser.add_argument("--history", choices=("attempts", "off"), default="off")
    parser.add_argument(
        "--folder", type=Path, help="folder of the files; default: the temporary one"
    )
    asked = parser.parse_args()
    print(f"{'level':<8}{'claims by':<12}{'us a job':>10}{'min':>8}{'max':>8}{'bytes a job':>13}")
    for level in asked.levels:
        costs: Costs = {}
        for _ in range(asked.rounds):
            for kind in STORES:
                with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
                    LEVELS[level](costs, kind, Path(folder), asked)
        for kind, some in costs.items():
            cpu = [one.cpu_us for one in some]
            written = median(one.written for one in some)
            print(
                f"{level:<8}{kind:<12}{median(cpu):>10.2f}{min(cpu):>8.2f}{max(cpu):>8.2f}"
                f"{written:>13.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
