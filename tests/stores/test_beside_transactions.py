"""Writes of a thread that has a transaction open, but are not part of it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from dueline.core.errors import BadInput
from dueline.core.store import Drop, Group, Put, Store, Transactional
from dueline.store_tests.calls import (
    NOW_US,
    QUEUE,
    WIDTH_US,
    claim,
    lane_of,
    new_job,
    new_jobs,
    row_of,
    rows_in,
)
from tests.harness.clocks import HandClock
from tests.harness.postgres import schemas
from tests.harness.world import store_on

WRITES: dict[str, Callable[[Store], object]] = {
    "add": lambda store: store.add([new_job(2)]),
    "add many": lambda store: store.add(new_jobs(3, first=2)),
    "claim": lambda store: claim(store, lane_of()),
    "settle": lambda store: store.settle([Drop(new_job(1))]),
    "together": lambda store: store.together([Group(jobs=[new_job(2)])]),
    "commit": lambda store: store.commit("p", [Put("key", b"v" * 16, b"value")]),
    "append": lambda store: store.append([row_of(1)]),
    "close_until": lambda store: store.close_until("log", 0, at_us=NOW_US),
    "sweep": lambda store: store.sweep(QUEUE, 0, now_us=NOW_US, width_us=WIDTH_US),
}


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param != "postgres":
        yield store_on(request.param, tmp_path, HandClock())
        return
    with schemas() as made:
        store = made.open(made.fresh())
        yield store
        store.close()


def test_a_write_beside_the_open_transaction_of_its_thread_is_refused(store: Store) -> None:
    store.add([new_job(1)])
    transactional = cast("Transactional", store)
    for write in WRITES.values():
        with transactional.transaction(), pytest.raises(BadInput, match="not part of it"):
            write(store)
    assert rows_in(store, lane_of()) == [new_job(1)]
