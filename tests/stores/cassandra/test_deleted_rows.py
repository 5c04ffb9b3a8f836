"""A node that fails reads which cross many deleted rows: they are made in pieces."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from dueline.api.connect import open_store
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.lane import Lane
from dueline.core.store import Drop
from dueline.store_tests.calls import (
    NOW_US,
    QUEUE,
    WIDTH_US,
    claim,
    id_of,
    ids_of,
    lane_of,
    new_jobs,
    pointers_in,
    put_in,
    rows_in,
)
from dueline.stores.cursor_cache import START, Page
from tests.harness.cassandra_node import PATIENT, expect_node
from tests.harness.servers import absent
from tools.cassandra.jars import CassandraError
from tools.cassandra.ring import Ring

if TYPE_CHECKING:  # the driver may be absent
    from dueline.stores.cassandra.store import CassandraStore

expect_node()
pytestmark = [pytest.mark.cassandra, pytest.mark.long]

FIRST = 91
ALLOWED = 200
DROPPED = 900
OPTIONS = (
    "-Dcassandra.config.allow_system_properties=true"
    f" -Dcassandra.settings.tombstone_failure_threshold={ALLOWED}"
    " -Dcassandra.settings.tombstone_warn_threshold=100"
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    ring = Ring(tmp_path_factory.mktemp("ring"), first=FIRST, fast_start=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {OPTIONS}")
        try:
            ring.start()
        except CassandraError as error:
            absent("cassandra", str(error))
    try:
        yield f"{ring.url('deleted_rows')}&{PATIENT}"
    finally:
        ring.remove()


def opened(address: str) -> CassandraStore:
    from dueline.stores.cassandra.store import CassandraStore  # noqa: PLC0415  (needs the driver)

    store = open_store(address)
    assert isinstance(store, CassandraStore)
    return store


@pytest.fixture(scope="module")
def store(address: str) -> Iterator[CassandraStore]:
    store = opened(address)
    store.migrate()
    yield store
    store.close()


@pytest.fixture
def fresh(store: CassandraStore, address: str) -> Iterator[CassandraStore]:
    """A claimer that remembers nothing."""
    del store  # has made the tables
    fresh = opened(address)
    yield fresh
    fresh.close()


@pytest.fixture(scope="module", autouse=True)
def deleted(store: CassandraStore) -> None:
    """Leave many deleted rows at one instant, and some later, before three that are there."""
    for first, at_us in ((1, NOW_US), (DROPPED // 2, NOW_US + SECOND_US)):
        put_in(store, *new_jobs(DROPPED // 2, first=first, at_us=at_us, lane=lane_of()))
    while jobs := claim(store, lane_of(), now_us=NOW_US + 2 * SECOND_US).jobs:
        assert all(store.settle([Drop(job) for job in jobs]))
    put_in(store, *new_jobs(3, first=2001, at_us=NOW_US + 3 * SECOND_US, lane=lane_of()))


LEFT = [id_of(number) for number in (2001, 2002, 2003)]


def test_the_node_fails_such_reads(fresh: CassandraStore) -> None:
    from dueline.stores.cassandra import statements as rows  # noqa: PLC0415  (needs the driver)
    from dueline.stores.cassandra.connection import TooManyTombstones  # noqa: PLC0415

    with pytest.raises(TooManyTombstones):
        fresh._session.read(*rows.whole_page(lane_of(), Page(START, 10)))


def test_a_lane_is_scanned_past_many_deleted_rows(fresh: CassandraStore) -> None:
    assert ids_of(rows_in(fresh, lane_of())) == LEFT
    assert ids_of(rows_in(fresh, lane_of(), page_size=1)) == LEFT


def test_a_new_claimer_claims_past_many_deleted_rows(fresh: CassandraStore) -> None:
    now_us = NOW_US + 4 * SECOND_US
    (first, *_) = claim(fresh, lane_of(), most=1, limit=1, now_us=now_us).jobs
    assert first.id == LEFT[0]
    told = claim(fresh, lane_of(), now_us=now_us, token=2)
    assert ids_of(told.jobs) == LEFT[1:]


def test_what_was_found_out_is_not_found_out_again(
    fresh: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows_in(fresh, lane_of())
    failed: list[object] = []
    read_many = fresh._session.try_read_many

    def watched(calls: object) -> object:
        answers = read_many(calls)  # type: ignore[arg-type]  # passed on
        failed.extend(answer for answer in answers if isinstance(answer, Exception))
        return answers

    monkeypatch.setattr(fresh._session, "try_read_many", watched)
    assert ids_of(rows_in(fresh, lane_of())) == LEFT
    assert failed == []


def test_a_sweep_looks_past_many_deleted_rows(fresh: CassandraStore) -> None:
    """The lane stays listed while it holds a row."""
    for _ in range(2):
        fresh.sweep(QUEUE, 0, now_us=NOW_US + DAY_US, width_us=WIDTH_US)
    assert {pointer.lane for pointer in pointers_in(fresh)} == {lane_of()}


def test_lanes_with_many_deleted_rows_are_listed_if_they_have_rows(
    fresh: CassandraStore,
) -> None:
    # The audit pages through all lanes: one that is refused would stop it, and all maintenance.
    drained, left = lane_of(tenant="drained"), lane_of(tenant="left")
    for lane in (drained, left):
        put_in(fresh, *new_jobs(DROPPED // 3, first=3001, at_us=NOW_US, lane=lane))
        while jobs := claim(fresh, lane, now_us=NOW_US + 2 * SECOND_US).jobs:
            assert all(fresh.settle([Drop(job) for job in jobs]))
    put_in(fresh, *new_jobs(1, first=4001, at_us=NOW_US + 3 * SECOND_US, lane=left))
    listed = set[Lane]()
    after = None
    while True:
        page = fresh.lanes_with_rows(after=after, limit=100)
        listed.update(page.lanes)
        after = page.after
        if after is None:
            break
    assert left in listed
    assert drained not in listed
