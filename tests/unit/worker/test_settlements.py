"""Settling attempts while the worker's loop claims the next jobs."""

import threading
from collections.abc import Sequence

import pytest

from dueline.core.store import Claimed, Group, Store
from dueline.jobs.queue import Queues
from tests.harness.calls import call, put
from tests.harness.clocks import HandClock
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.queues import queues_on
from tests.harness.worker_bench import Bench, words

PATIENCE_S = 5.0


class OneAtATime(FailingStore):
    """Holds back each settlement until the worker has claimed, or said what it waits for.

    plan: faults of settlements, by their numbers.
    """

    def __init__(self, store: Store, plan: dict[int, Fault] | None = None) -> None:
        super().__init__(store, {})
        self.plan = plan or {}
        self.settled = 0
        self.has_begun = False  # in the worker's own thread
        self.may_go_on = threading.Event()
        self.threads: set[str] = set()

    def claim(self, *wants: object, **terms: object) -> Claimed:
        claimed: Claimed = super().claim(*wants, **terms)  # type: ignore[arg-type]
        if self.has_begun:
            self.may_go_on.set()
        return claimed

    def together(self, groups: Sequence[Group]) -> Sequence[bool]:
        if not groups[0].verdicts:
            return super().together(groups)
        self.settled += 1
        self.threads.add(threading.current_thread().name)
        assert self.may_go_on.wait(PATIENCE_S), "nothing was claimed meanwhile"
        fault = self.plan.get(self.settled)
        self._plan = {self.calls + 1: fault} if fault else {}
        return super().together(groups)


@pytest.fixture
def store_of(store: Store) -> OneAtATime:
    return OneAtATime(store)


def bench_on(store: OneAtATime, clock: HandClock, **more: object) -> Bench:
    """Make a worker with two slots whose settlements are waited for after each pass."""
    queues = queues_on(store, clock)
    bench = Bench(queues, clock, settles_beside=True, **more)  # type: ignore[arg-type]
    begin = bench.worker._settlements.begin

    def note_begin(*given: object, **more: object) -> None:
        store.has_begun = True
        begin(*given, **more)  # type: ignore[arg-type]

    bench.worker._settlements.begin = note_begin  # type: ignore[method-assign]

    def meanwhile() -> None:
        bench.run_all()
        bench.worker._settlements.wait()

    bench.wakeup.meanwhile = meanwhile
    return bench


def test_jobs_are_claimed_while_others_are_settled(
    store_of: OneAtATime, queues: Queues, clock: HandClock
) -> None:
    put(queues, *(call(number) for number in range(6)))
    bench = bench_on(store_of, clock)
    assert sorted(bench.run()) == list(range(6))
    assert store_of.threads == {"dueline-settle"}
    assert words(queues) == ["done"] * 6


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
def test_a_settlement_that_failed_is_repeated(
    store: Store, queues: Queues, clock: HandClock, fault: Fault
) -> None:
    put(queues, *(call(number) for number in range(6)))
    bench = bench_on(OneAtATime(store, {2: fault}), clock)
    assert sorted(bench.run()) == list(range(6))
    assert words(queues) == ["done"] * 6
    assert len(clock.slept) == 1


def test_what_is_being_settled_takes_no_slot(
    store_of: OneAtATime, queues: Queues, clock: HandClock
) -> None:
    put(queues, *(call(number) for number in range(4)))
    bench = bench_on(store_of, clock)
    held: list[tuple[int, int]] = []
    claim = store_of.claim

    def look(*wants: object, **terms: object) -> Claimed:
        held.append((len(bench.worker._held), bench.worker._slots.taken()))
        return claim(*wants, **terms)

    store_of.claim = look  # type: ignore[method-assign]
    bench.run()
    assert held[:2] == [(0, 0), (2, 0)]


def test_a_heartbeat_reports_no_job_that_is_being_settled(
    store_of: OneAtATime, queues: Queues, clock: HandClock
) -> None:
    # A6: its row is gone, since it has just ended
    put(queues, call(1))
    bench = bench_on(store_of, clock)
    lost: list[object] = []
    bench.worker._settler.lost = lost.extend  # type: ignore[assignment]
    beats: list[int] = []

    def beat() -> None:
        bench.run_all()
        if bench.worker._settlements.is_under_way():
            store_of.may_go_on.set()
            bench.worker._settlements.wait()
            beats.append(len(bench.worker._held))
            bench.beat()

    bench.wakeup.meanwhile = beat
    bench.run()
    assert (beats, lost) == ([1], [])


def test_a_worker_in_a_hurry_waits_for_a_settlement(
    store_of: OneAtATime, queues: Queues, clock: HandClock
) -> None:
    # rule A3
    put(queues, call(1), call(2))
    bench = bench_on(store_of, clock, burst=False)

    def stop() -> None:
        bench.run_all()
        if bench.worker._settlements.is_under_way():
            bench.worker.stop(hurry=True)
            threading.Timer(0.01, store_of.may_go_on.set).start()

    bench.wakeup.meanwhile = stop
    bench.run()
    assert words(queues) == ["done", "done"]
