"""How the Cassandra store reads: look-ups, lanes in order, and how much at once."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from dueline.api.connect import open_store
from dueline.core.job import Job, JobId
from dueline.core.lane import Lane
from dueline.core.store import Drop, Extend
from dueline.store_tests.calls import (
    LEASE_US,
    NOW_US,
    claim,
    id_of,
    ids_of,
    lane_of,
    move,
    new_job,
    new_jobs,
    put_in,
    rows_in,
)
from dueline.stores.cursor_cache import key_of
from tests.harness.cassandra_node import Keyspaces, expect_node, keyspaces_on_a_node

if TYPE_CHECKING:  # the driver may be absent
    from dueline.stores.cassandra.answers import Rows
    from dueline.stores.cassandra.session import Call
    from dueline.stores.cassandra.statements import Found
    from dueline.stores.cassandra.store import CassandraStore

expect_node()
pytestmark = pytest.mark.cassandra

OTHER = lane_of(priority=7)


@pytest.fixture(scope="module")
def keyspaces() -> Iterator[Keyspaces]:
    with keyspaces_on_a_node() as keyspaces:
        yield keyspaces


@pytest.fixture
def store(keyspaces: Keyspaces) -> Iterator[CassandraStore]:
    from dueline.stores.cassandra.store import CassandraStore  # noqa: PLC0415  (needs the driver)

    store = open_store(keyspaces.fresh())
    assert isinstance(store, CassandraStore)
    yield store
    store.close()


class Reads:
    """What a store has read since it is watched, reading by reading.

    calls: the statements of each. rows: how many rows. bytes: how large their cells are.
    """

    def __init__(self, store: CassandraStore, patch: pytest.MonkeyPatch) -> None:
        self.calls: list[Sequence[Call]] = []
        self.rows: list[int] = []
        self.bytes: list[int] = []
        self._read = store._session.try_read_many
        patch.setattr(store._session, "try_read_many", self._watch)

    def _watch(self, calls: Sequence[Call]) -> list[Rows]:
        if not calls:
            return []
        answers = self._read(calls)
        assert all(isinstance(answer, list) for answer in answers)
        read = [row for answer in answers if isinstance(answer, list) for row in answer]
        self.calls.append(calls)
        self.rows.append(len(read))
        self.bytes.append(sum(len(cell) for row in read for cell in row if isinstance(cell, bytes)))
        return [answer for answer in answers if isinstance(answer, list)]


# --- look-up ---------------------------------------------------------------------------------


def left_over(store: CassandraStore, patch: pytest.MonkeyPatch) -> Job:
    """Carry a job, and leave its stub where it was; tell the job in its new lane."""
    from dueline.stores.cassandra import statements as rows  # noqa: PLC0415  (needs the driver)

    put_in(store, new_job(1))
    stubs: list[Found] = []
    with patch.context() as inner:
        inner.setattr(store._verdicts, "carry", stubs.extend)
        assert list(store.settle([move(new_job(1), NOW_US, to=OTHER)])) == [True]
    ((target, listing),) = map(rows.target_of, stubs)
    assert store._verdicts._insert([target], {OTHER: listing}, rows.insert_whole) == [False]
    assert is_there(store, new_job(1))
    return target


def is_there(store: CassandraStore, job: Job) -> bool:
    """Tell whether a row is there, be it a stub."""
    from dueline.stores.cassandra import statements as rows  # noqa: PLC0415  (needs the driver)

    return bool(store._session.read(*rows.some(job.lane, [key_of(job)])))


def test_what_ended_after_it_was_carried_is_not_found(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stub was left over, and says how it was when it was carried."""
    left_over(store, monkeypatch)
    (job,) = claim(store, OTHER).jobs
    assert list(store.settle([Drop(job)])) == [True]
    assert list(store.find([id_of(1)])) == [None]
    assert not is_there(store, new_job(1))


def test_a_stub_that_was_left_over_goes_when_its_job_is_looked_up(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_over(store, monkeypatch)
    (job,) = claim(store, OTHER).jobs
    assert list(store.find([id_of(1)])) == [job]
    assert not is_there(store, new_job(1))


# --- lanes in order --------------------------------------------------------------------------


def test_a_scan_does_not_read_the_lane_again_at_each_page(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = new_jobs(600)
    put_in(store, *jobs)
    reads = Reads(store, monkeypatch)
    assert rows_in(store, lane_of(), page_size=50) == jobs
    assert sum(reads.rows) <= 3 * len(jobs)


def moved_about(store: CassandraStore, lane: Lane, chance: random.Random, first: int) -> list[Job]:
    """Put jobs into a lane, and end, extend and requeue some; return all."""
    jobs = [
        new_job(number, at_us=NOW_US + chance.choice((0, 0, 5, 9)), lane=lane)
        for number in range(first, first + 60)
    ]
    put_in(store, *jobs)
    for job in claim(store, lane, limit=40, now_us=NOW_US + 9).jobs:
        act = chance.randrange(4)
        at_us = NOW_US + chance.choice((0, 5, 9, LEASE_US, 2 * LEASE_US))
        if act == 0:
            store.settle([Drop(job)])
        elif act == 1:
            store.settle([Extend(job, max(at_us, job.pos_us))])
        elif act == 2:
            store.settle([move(job, at_us, token=1000 + chance.randrange(10**6))])
    return jobs


@pytest.mark.parametrize("page_size", [1, 7, 1000])
def test_a_scan_finds_what_was_moved_in_its_order(store: CassandraStore, page_size: int) -> None:
    lane = lane_of()
    jobs = moved_about(store, lane, random.Random(page_size), 1)
    present = [row for row in store.find(ids_of(jobs)) if row is not None]
    in_order = sorted(present, key=lambda row: (row.at_us, row.id))
    assert rows_in(store, lane, page_size=page_size) == in_order
    until_us = NOW_US + 5
    early = [row for row in in_order if row.at_us <= until_us]
    assert rows_in(store, lane, page_size=page_size, until_us=until_us) == early


@pytest.mark.long
@pytest.mark.parametrize("page_size", [1, 7, 1000])
@pytest.mark.parametrize("until_us", [None, NOW_US + 5])
def test_lanes_that_are_scanned_together_are_as_each_by_itself(
    store: CassandraStore, page_size: int, until_us: int | None
) -> None:
    chance = random.Random(page_size)
    lanes = [lane_of(shard=n, priority=p) for n in range(2) for p in (0, 7)]
    for place, lane in enumerate(lanes[:3]):  # and an empty one
        moved_about(store, lane, chance, 1 + 100 * place)
    lanes.append(lane_of(tenant="acme"))
    put_in(store, *new_jobs(5, first=901, lane=lanes[-1]))
    seen: dict[Lane, list[Job]] = {lane: [] for lane in lanes}
    places: list[tuple[Lane, tuple[int, JobId] | None]] = [(lane, None) for lane in lanes]
    while places:
        pages = store.scan_each(places, until_us=until_us, limit=page_size)
        for (lane, _), page in zip(places, pages, strict=True):
            assert len(page.jobs) <= page_size
            seen[lane] += page.jobs
        places = [
            (lane, page.after)
            for (lane, _), page in zip(places, pages, strict=True)
            if page.after is not None
        ]
    assert seen == {lane: rows_in(store, lane, until_us=until_us) for lane in lanes}
    assert [bool(jobs) for jobs in seen.values()] == [True, True, True, False, True]


def test_the_first_rows_of_many_lanes_are_few_reads(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes = [lane_of(shard=n, priority=p) for n in range(8) for p in (0, 7)]
    for place, lane in enumerate(lanes):
        put_in(store, *new_jobs(3, first=1 + 10 * place, lane=lane))
    store.scan(lanes[0], after=None, until_us=None, limit=1)  # the size of rows is known
    reads = Reads(store, monkeypatch)
    pages = store.scan_each([(lane, None) for lane in lanes], until_us=None, limit=2)
    assert [len(page.jobs) for page in pages] == [2] * len(lanes)
    assert [len(calls) for calls in reads.calls] == [1]


def test_a_page_that_holds_only_stubs_is_passed(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in(store, *new_jobs(5))
    with monkeypatch.context() as patch:
        patch.setattr(store._verdicts, "carry", lambda _stubs: None)
        store.settle([move(new_job(n), NOW_US, to=OTHER) for n in (1, 2, 3, 5)])
    assert ids_of(rows_in(store, lane_of(), page_size=2)) == [id_of(4)]


# --- how much at once ------------------------------------------------------------------------

LARGE = b'"' + b"x" * 200_000 + b'"'
LARGE_COUNT = 60


def test_large_rows_are_read_some_at_a_time(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dueline.stores.cassandra.lane_reader import BYTES_AT_ONCE  # noqa: PLC0415  (needs the driver)

    jobs = [new_job(number, body=LARGE) for number in range(1, LARGE_COUNT + 1)]
    put_in(store, *jobs)
    reads = Reads(store, monkeypatch)
    assert rows_in(store, lane_of()) == jobs
    assert ids_of(claim(store, lane_of()).jobs) == ids_of(jobs)
    assert sum(reads.bytes) > BYTES_AT_ONCE
    assert max(reads.bytes) <= BYTES_AT_ONCE * 1.1


def test_small_rows_are_read_and_claimed_at_once(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in(store, *new_jobs(300), new_job(1001, lane=OTHER))
    claim(store, OTHER)  # a first look: how large rows are is not known
    reads = Reads(store, monkeypatch)
    assert len(claim(store, lane_of(), token=2).jobs) == 100
    assert [len(calls) for calls in reads.calls] == [1]


def test_a_lane_that_comes_first_is_claimed_to_its_end_first(store: CassandraStore) -> None:
    """However many batches that takes."""
    put_in(store, *new_jobs(250))
    put_in(store, *new_jobs(250, first=1001, lane=OTHER))
    claimed = claim(store, lane_of(), OTHER, most=250, limit=300).jobs
    assert [job.lane for job in claimed] == [lane_of()] * 250 + [OTHER] * 50
