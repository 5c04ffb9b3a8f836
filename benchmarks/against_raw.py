"""The project against the raw loop on SQLite, round by round."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import ours, raw
from benchmarks.rounds import Rounds
from dueline import Dueline

TEXT: Final = "x" * 100
CALLERS: Final = 8
BODY: Final = f'["{TEXT}"]'.encode()


@dataclass(frozen=True, slots=True)
class Comparison:
    """Something of ours, the raw counterpart, and the least ratio to reach (None: none is set)."""

    name: str
    ours: str
    raw: str
    bar: float | None


COMPARISONS: Final = (
    Comparison("bulk_enqueue", "bulk enqueue", "raw insert", 0.50),
    Comparison("drain", "drain", "raw claim + drop", 0.35),
    Comparison("drain_with_history", "drain with history", "raw claim + drop + tell", 0.50),
    Comparison("drain_with_history_to_drop", "drain with history", "raw claim + drop", None),
    Comparison("single_enqueue", "single enqueue", "raw single insert", None),
    Comparison("eight_callers_to_one", "eight callers", "single enqueue", None),
    Comparison("drain_of_tenants", "drain of tenants", "drain with history", 0.33),
)


BULK_TO_SINGLE: Final = {
    "FULL": Comparison("bulk_to_single", "bulk enqueue", "single enqueue", 20),
    "NORMAL": Comparison("bulk_to_single", "bulk enqueue", "single enqueue", None),
}
"""A single call waits for the disk with FULL, which is the default; with NORMAL none does."""


def run(
    rounds: Rounds, folder: Path, synchronous: str, *, jobs: int, singles: int, tenants: int
) -> None:
    """Run one round in an empty folder: raw, ours, raw, ours."""
    _batches(rounds, folder, synchronous, jobs)
    _history(rounds, folder, synchronous, jobs)
    _tenants(rounds, folder, synchronous, tenants)
    _singles(rounds, folder, synchronous, singles)


def _batches(rounds: Rounds, folder: Path, synchronous: str, jobs: int) -> None:
    database = raw.open_raw(folder / "raw.db", synchronous)
    app, task = ours.open_app(ours.sqlite(folder / "ours.db", synchronous), history="off")
    births = raw.rows(jobs, BODY)
    with rounds.timed("raw insert", jobs):
        raw.insert(database, births)
    del births
    with rounds.timed("bulk enqueue", jobs):
        ours.enqueue(task, jobs, TEXT)
    with rounds.timed("raw claim + drop", jobs):
        drained = raw.drain(database)
    assert drained == jobs
    _drain(rounds, "drain", app, jobs)
    database.close()


def _history(rounds: Rounds, folder: Path, synchronous: str, jobs: int) -> None:
    database = raw.open_raw(folder / "raw_history.db", synchronous)
    raw.insert(database, raw.rows(jobs, BODY))
    history = raw.told(jobs, ours.history_body())
    with rounds.timed("raw claim + drop + tell", jobs):
        drained = raw.drain(database, history)
    assert drained == jobs
    database.close()
    url = ours.sqlite(folder / "history.db", synchronous)
    app, task = ours.open_app(url, history="attempts")
    ours.enqueue(task, jobs, TEXT)
    _drain(rounds, "drain with history", app, jobs)


def _drain(rounds: Rounds, what: str, app: Dueline, jobs: int) -> None:
    """Time how long a worker takes to empty the queue."""
    with rounds.timed(what, jobs):
        ours.drain(app)
    assert ours.is_empty(app)
    app.close()


def _tenants(rounds: Rounds, folder: Path, synchronous: str, tenants: int) -> None:
    """Drain a job of each of many tenants: as many lanes as jobs."""
    url = ours.sqlite(folder / "tenants.db", synchronous)
    app, _ = ours.open_app(url, history="attempts")
    ours.enqueue_for_each(app, tenants, BODY)
    _drain(rounds, "drain of tenants", app, tenants)


def _singles(rounds: Rounds, folder: Path, synchronous: str, singles: int) -> None:
    database = raw.open_raw(folder / "raw_singles.db", synchronous)
    app, task = ours.open_app(ours.sqlite(folder / "singles.db", synchronous), history="off")
    births = raw.rows(singles, BODY)
    with rounds.timed("raw single insert", singles):
        raw.insert_singly(database, births)
    with rounds.timed("single enqueue", singles):
        ours.enqueue_singly(task, singles, TEXT)
    with rounds.timed("eight callers", singles // CALLERS * CALLERS):
        ours.enqueue_at_once(task, CALLERS, singles // CALLERS, TEXT)
    app.close()
    database.close()
