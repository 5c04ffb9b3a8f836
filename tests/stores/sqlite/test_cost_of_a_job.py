"""What a plain drain runs for each job and each batch: features that are not used add nothing."""

from pathlib import Path
from typing import NamedTuple

import pytest

from dueline.stores.sqlite.store import SqliteStore
from tests.harness.calls import calls
from tests.harness.clocks import HandClock
from tests.harness.function_calls import SOURCE, calls_of
from tests.harness.queues import queues_on
from tests.harness.worker_bench import Bench

pytestmark = [pytest.mark.sqlite, pytest.mark.usefixtures("untraced")]

CALLS_A_JOB_MAX = 21
CALLS_A_BATCH_MAX = 548
STATEMENTS_A_BATCH_MAX = 17


class Cost(NamedTuple):
    """What ran: functions of the library, and statements."""

    calls: int
    statements: int


def cost_of_a_drain(path: Path, count: int, slots: int) -> Cost:
    """Drain jobs by slots, in one thread that waits for nothing."""
    clock = HandClock()
    store = SqliteStore(path, clock=clock)
    queues = queues_on(store, clock)
    queues.enqueue(calls(0, count))
    bench = Bench(queues, clock, threads=slots, settles_beside=False)
    statements: list[object] = []

    def trace(*traced: object) -> bool:
        statements.append(traced)
        return True

    database = store._file.read(lambda database: database)
    database.set_exec_trace(trace)
    entered = calls_of(bench.run, of=SOURCE)
    database.set_exec_trace(None)
    assert len(bench.runner.began) == count
    store.close()
    return Cost(entered, len(statements))


def test_a_plain_drain_runs_little_for_each_job_and_each_batch(tmp_path: Path) -> None:
    hundred, three_hundred = (cost_of_a_drain(tmp_path / f"{n}.db", n, n) for n in (100, 300))
    ten = cost_of_a_drain(tmp_path / "ten.db", 100, 10)
    assert (three_hundred.calls - hundred.calls) / 200 <= CALLS_A_JOB_MAX
    assert (ten.calls - hundred.calls) / 9 <= CALLS_A_BATCH_MAX
    assert (ten.statements - hundred.statements) / 9 <= STATEMENTS_A_BATCH_MAX


def test_what_a_worker_reports_costs_the_same_for_any_number_of_jobs(tmp_path: Path) -> None:
    clock = HandClock()
    store = SqliteStore(tmp_path / "jobs.db", clock=clock)
    queues = queues_on(store, clock)
    seen: list[int] = []
    for slots in (10, 100):
        queues.enqueue(calls(0, slots))
        bench = Bench(queues, clock, threads=slots, settles_beside=False)
        held: list[int] = []

        def report(bench: Bench = bench, held: list[int] = held) -> None:
            held.append(bench.worker.load().held)
            seen.append(calls_of(bench.worker.load, of=SOURCE))
            bench.run_all()

        bench.wakeup.meanwhile = report
        bench.run()
        assert held[0] == slots
    assert len(set(seen)) == 1
    store.close()
