"""The store that fails on demand."""

import pytest

from dueline.core.clock import SystemClock
from dueline.core.errors import Unknown
from dueline.core.job import JobId
from dueline.core.store import Drop, Group, Put, Store
from dueline.store_tests.calls import (
    NOW_US,
    QUEUE,
    WIDTH_US,
    claim,
    lane_of,
    new_jobs,
    row_of,
    token_of,
)
from dueline.stores.memory.store import MemoryStore
from tests.harness.failing_store import FailingStore, Fault


def live(store: Store) -> None:
    """Make each call of the waist once; thirteen are counted."""
    store.add(new_jobs(2))
    first, second = claim(store, lane_of()).jobs
    store.settle([Drop(first)])
    store.together([Group(verdicts=[Drop(second)], jobs=new_jobs(1, first=9))])
    store.commit("p", [Put("key", token_of(1), b"value")])
    store.append([row_of(1)])
    store.sweep(QUEUE, 0, now_us=NOW_US, width_us=WIDTH_US)
    store.find([first.id])
    store.scan(lane_of(), after=None, until_us=None, limit=1)
    store.lanes(QUEUE, 0, until_bucket=0, after=None, limit=1)
    store.read("p", after=None, limit=1)
    store.tail("log", 0, after=None, limit=1)
    store.clock_us()
    store.describe()
    store.close()


def test_without_a_plan_nothing_fails() -> None:
    store = FailingStore(MemoryStore(SystemClock()), {})
    live(store)
    assert store.calls == 13
    assert (store.transactional, store.scope) == (True, "process")


@pytest.mark.parametrize("fault", Fault)
def test_each_call_can_be_the_one_that_fails(fault: Fault) -> None:
    for number in range(1, 14):
        store = FailingStore(MemoryStore(SystemClock()), {number: fault})
        with pytest.raises(Unknown, match=f"call {number} was {fault.value}"):
            live(store)
        assert store.calls == number
    store = FailingStore(MemoryStore(SystemClock()), {14: fault})
    live(store)
    assert store.calls == 13


@pytest.mark.parametrize("fault", Fault)
def test_a_call_is_applied_before_its_answer_is_lost_and_never_when_it_is_dropped(
    fault: Fault,
) -> None:
    inside = MemoryStore(SystemClock())
    with pytest.raises(Unknown):
        FailingStore(inside, {1: fault}).add(new_jobs(1))
    (row,) = inside.find([JobId((1).to_bytes(16))])
    assert (row is not None) == (fault is Fault.AFTER)
