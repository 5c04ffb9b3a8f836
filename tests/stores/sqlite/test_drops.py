"""Drops of many jobs of a claim, by their place and by their ids."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dueline.core.job import Job
from dueline.core.store import Drop, Extend, Lease, Move, Store, Verdict, Want
from dueline.store_tests.calls import LEASE_US, NOW_US, lane_of, new_job, token_of
from dueline.stores.memory.store import MemoryStore
from dueline.stores.sqlite.store import SqliteStore
from tests.harness.clocks import HandClock

pytestmark = pytest.mark.sqlite

COUNT = 12
LANES = [lane_of(tenant="a"), lane_of(tenant="b")]
LONG = b'["%s"]' % (b"x" * 2000)
PLACES = st.sets(st.integers(0, COUNT - 1))
ALL = set(range(COUNT))


def claimed_of(store: Store, lanes: Sequence[int], *, at_once: bool) -> list[Job]:
    jobs = [
        new_job(number, at_us=NOW_US, lane=LANES[lane], body=LONG if number == 1 else b"[1]")
        for number, lane in enumerate(lanes)
    ]
    store.add(jobs)
    taken: list[Job] = []
    for turn, most in enumerate([COUNT] if at_once else [COUNT // 2, COUNT]):
        wants = [Want(lane, most) for lane in LANES]
        taken += store.claim(
            wants, limit=most, lease=Lease(NOW_US, LEASE_US, "w", token_of(turn + 1))
        ).jobs
    return taken


def moved(job: Job, number: int) -> Move:
    return Move(job, job.at_us, token_of(100 + number), job.lane.bucket, 0, 0)


@pytest.mark.long
@given(
    lanes=st.lists(st.integers(0, 1), min_size=COUNT, max_size=COUNT),
    at_once=st.booleans(),
    extended=PLACES,
    lost=PLACES,
    dropped=st.lists(st.integers(0, COUNT - 1), min_size=1),
)
@example(lanes=[0] * COUNT, at_once=True, extended=set(), lost=set(), dropped=[*ALL])
@example(lanes=[0] * COUNT, at_once=True, extended=set(), lost={3}, dropped=[*ALL])
@example(lanes=[0] * COUNT, at_once=True, extended={3}, lost=set(), dropped=[*ALL])
@example(lanes=[0] * COUNT, at_once=True, extended=set(), lost=set(), dropped=[*ALL, 5])
@example(lanes=[0] * COUNT, at_once=True, extended=set(), lost=set(), dropped=[*range(1, COUNT)])
@example(lanes=[0] * COUNT, at_once=False, extended=set(), lost=set(), dropped=[*ALL])
def test_drops_of_a_claim_do_what_each_by_itself_does(
    lanes: list[int], *, at_once: bool, extended: set[int], lost: set[int], dropped: list[int]
) -> None:
    clock = HandClock()
    with TemporaryDirectory() as folder:
        model: Store = MemoryStore(clock)
        store = SqliteStore(Path(folder) / "jobs.db", clock=clock, synchronous="OFF")
        held, left = [], []
        for each in (model, store):
            jobs = claimed_of(each, lanes, at_once=at_once)
            before: list[Verdict] = [
                Extend(jobs[place], jobs[place].at_us + 1) for place in extended
            ]
            before += [moved(jobs[place], place) for place in lost]
            assert all(each.settle(before))
            held.append(list(each.settle([Drop(jobs[place]) for place in dropped])))
            left.append([job.id for lane in LANES for job in each.scan(
                lane, after=None, until_us=None, limit=COUNT).jobs])  # fmt: skip
        assert held[1] == held[0]
        assert left[1] == left[0]
        store.close()
