"""What an insert reads and writes."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dueline.store_tests.calls import FAR_BUCKET, WIDTH_US, lane_of, new_job, new_jobs
from dueline.stores.sqlite.store import SqliteStore
from tests.harness.clocks import HandClock

pytestmark = pytest.mark.sqlite

PROCESSES = 8
CALLS = 60
WAIT_S_MAX = 20.0

CALLER = """
import json, sys, time
from dueline import Dueline

app = Dueline(sys.argv[1])

@app.task(name="tests.note")
def note(number: int) -> None: ...

note.enqueue(-1)
print("ready", flush=True)
sys.stdin.readline()
began = time.monotonic()
longest = 0.0
for number in range(int(sys.argv[2])):
    start = time.monotonic()
    note.enqueue(number)
    longest = max(longest, time.monotonic() - start)
print(json.dumps([longest, time.monotonic() - began]), flush=True)
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "jobs.db", clock=HandClock())
    store.add([new_job(1)])
    yield store
    store.close()


def statements_of(store: SqliteStore, act: Callable[[], object]) -> list[str]:
    """Return the statements of a call."""
    seen: list[str] = []

    def trace(_cursor: object, statement: str, _bound: object) -> bool:
        seen.append(statement)
        return True

    database = store._file.read(lambda database: database)
    database.set_exec_trace(trace)
    act()
    database.set_exec_trace(None)
    return seen


def changes_of(store: SqliteStore, act: Callable[[], object]) -> int:
    """Count the rows that a call changes."""
    database = store._file.read(lambda database: database)
    before = database.total_changes()
    act()
    return database.total_changes() - before


def test_an_insert_in_a_lane_that_is_listed_writes_the_job_only(store: SqliteStore) -> None:
    assert changes_of(store, lambda: store.add([new_job(2)])) == 1
    assert changes_of(store, lambda: store.add(new_jobs(5, first=3))) == 5


def test_an_insert_lists_a_lane_that_is_listed_under_a_closed_bucket(store: SqliteStore) -> None:
    lane = lane_of()
    store.sweep(lane.queue, lane.shard, now_us=(lane.bucket + 3) * WIDTH_US, width_us=WIDTH_US)
    assert changes_of(store, lambda: store.add([new_job(2)])) == 2
    page = store.lanes(lane.queue, lane.shard, until_bucket=FAR_BUCKET, after=None, limit=10)
    assert [pointer.listing for pointer in page.pointers] == [page.marks.closed + 1]
    assert changes_of(store, lambda: store.add(new_jobs(2, first=3))) == 2


@pytest.mark.parametrize("known", [0, 300, 1000])
def test_a_thousand_lanes_are_listed_by_one_statement(store: SqliteStore, known: int) -> None:
    lanes = [lane_of(tenant=f"t{number}") for number in range(1000)]
    store.add([new_job(5000 + n, lane=lane) for n, lane in enumerate(lanes[:known])])
    jobs = [new_job(10_000 + n, lane=lane) for n, lane in enumerate(lanes * 2)]
    made = statements_of(store, lambda: store.add(jobs))
    about_lanes = [statement for statement in made if "lanes" in statement]
    assert len(about_lanes) == (1 if known == 1000 else 2)
    assert sum("INTO jobs" in statement for statement in made) <= 1 + len(jobs) // 50
    rows = store.find([job.id for job in jobs])
    assert [job and job.lane for job in rows] == lanes * 2


@pytest.mark.long
def test_each_of_eight_processes_makes_progress(tmp_path: Path) -> None:
    # no call waits long, and none of the processes is starved by the others
    url = f"sqlite:///{tmp_path}/jobs.db"
    command = [sys.executable, "-c", CALLER, url, str(CALLS)]
    callers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    try:
        for caller in callers:
            assert caller.stdout is not None
            assert caller.stdout.readline() == "ready\n"
        for caller in callers:
            assert caller.stdin is not None
            caller.stdin.write("\n")
            caller.stdin.flush()
        waits = [json.loads(caller.communicate(timeout=300)[0]) for caller in callers]
    finally:
        for caller in callers:
            caller.kill()
    assert max(longest for longest, _ in waits) <= WAIT_S_MAX
