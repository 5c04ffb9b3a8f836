"""What SQLite does to find work: never more for queues and lanes that are idle."""

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.lane import bucket_of
from dueline.stores.sqlite.connection import Database
from dueline.stores.sqlite.store import SqliteStore
from dueline.worker.claimer import Claimer
from tests.harness.calls import WIDTH_US, call, put, row_of
from tests.harness.clocks import HandClock
from tests.harness.queues import queues_on

IDLE = 400


class Counted:
    """A queue with one job, and what the library does to claim it."""

    def __init__(self, folder: Path) -> None:
        """Open an empty file."""
        self.clock = HandClock()
        self.store = SqliteStore(folder / "q.db", clock=self.clock, synchronous="NORMAL")
        self.queues = queues_on(self.store, self.clock)
        self.claimer = Claimer(self.queues.engine, ["default"], "w")

    def database(self) -> Database:
        """Get at the connection."""
        databases: list[Database] = []
        self.store._connection.read(databases.append)
        return databases[0]

    def steps(self) -> int:
        """Put a job, look, claim it; tell how many steps of its machine the library took."""
        put(self.queues, call())
        self.claimer.refresh()  # settings and marks are read, what is past is swept
        database = self.database()
        ticks = 0

        def tick() -> bool:
            nonlocal ticks
            ticks += 1
            return False

        database.set_progress_handler(tick, 1)
        try:
            self.claimer.refresh()
            taken = self.claimer.claim(10, {})
        finally:
            database.set_progress_handler(None)
        assert len(taken) == 1
        return ticks


def idle_queues(counted: Counted) -> None:
    """Add queues with a job for later each."""
    for number in range(IDLE):
        put(counted.queues, call(queue=f"idle{number}", due_us=counted.clock.wall_us() + DAY_US))


def idle_queues_that_have_jobs(counted: Counted) -> None:
    """Add queues with a job that is due each, which others serve."""
    for number in range(IDLE):
        put(counted.queues, call(queue=f"busy{number}"))


def idle_tenants(counted: Counted) -> None:
    """Add tenants whose jobs are due another day."""
    for number in range(IDLE):
        due_us = counted.clock.wall_us() + 2 * DAY_US
        put(counted.queues, call(tenant=f"t{number}", due_us=due_us))


def lanes_that_were_swept(counted: Counted) -> None:
    """Add lanes of the past whose jobs were put off, and let them be swept."""
    now_us = counted.clock.wall_us()
    later = now_us + 20 * DAY_US
    rows = []
    for number in range(IDLE):
        row = row_of(1000 + number, at_us=now_us - DAY_US)
        lane = row.lane._replace(tenant=f"t{number}")
        rows.append(row._replace(lane=lane, at_us=later))
    counted.store.add(rows)
    for _ in range(3):
        counted.store.sweep("default", 0, now_us=now_us, width_us=WIDTH_US)
    page = counted.store.lanes(
        "default", 0, until_bucket=bucket_of(now_us, WIDTH_US), after=None, limit=9
    )
    assert not page.pointers


@pytest.mark.sqlite
@pytest.mark.parametrize(
    "add", [idle_queues, idle_queues_that_have_jobs, idle_tenants, lanes_that_were_swept]
)
def test_what_is_idle_costs_a_look_and_a_claim_nothing(
    tmp_path: Path, add: Callable[[Counted], None]
) -> None:
    # H9
    (tmp_path / "alone").mkdir()
    (tmp_path / "beside").mkdir()
    alone, beside = Counted(tmp_path / "alone"), Counted(tmp_path / "beside")
    add(beside)
    assert beside.steps() <= alone.steps() + 20  # a seek in an index is a step or two
    alone.store.close()
    beside.store.close()


@pytest.mark.sqlite
def test_no_value_has_a_statement_compiled_again(tmp_path: Path) -> None:
    counted = Counted(tmp_path)
    compiled: list[str | None] = []

    def asked(_action: int, table: str | None, *_others: object) -> int:
        compiled.append(table)
        return apsw.SQLITE_OK

    counted.database().authorizer = asked  # SQLite calls it whenever it compiles a statement
    for _ in range(3):
        compiled.clear()
        counted.clock.advance(SECOND_US)
        counted.steps()
    assert compiled == []
    counted.store.close()
