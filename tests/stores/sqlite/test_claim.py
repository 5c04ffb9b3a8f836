"""Claims from many lanes, a job each, by one statement."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dueline.core.job import Job, JobId
from dueline.core.lane import Lane
from dueline.core.store import Claimed, Extend, Lease, Store, Want
from dueline.store_tests.calls import LEASE_US, NOW_US, lane_of, new_job, token_of
from dueline.stores.memory.store import MemoryStore
from dueline.stores.sqlite.store import SqliteStore
from tests.harness.clocks import HandClock

pytestmark = pytest.mark.sqlite

LANES = [
    lane_of(shard=shard, priority=priority, tenant=tenant)
    for shard in (0, 1)
    for priority in (0, 5)
    for tenant in ("", "a", "é", '"')
]
JOBS = st.lists(
    st.builds(
        new_job,
        st.integers(1, 10**6),
        at_us=st.sampled_from([NOW_US - 1, NOW_US, NOW_US + 1]),
        lane=st.sampled_from(LANES),
        body=st.sampled_from([b"[1]", b'["%s"]' % (b"x" * 2000)]),
    ),
    max_size=25,
    unique_by=lambda job: job.id,
)
WANTS = st.lists(
    st.builds(Want, st.sampled_from(LANES), st.sampled_from([1, 1, 1, 2])),
    min_size=1,
    unique_by=lambda want: want.lane,
)


def claimed(store: Store, wants: Sequence[Want], limit: int, *, turn: int) -> Claimed:
    now_us = NOW_US + turn * LEASE_US
    return store.claim(wants, limit=limit, lease=Lease(now_us, LEASE_US, "w", token_of(turn + 1)))


def told(claimed: Claimed) -> tuple[Sequence[Job], dict[JobId, Job], dict[Lane, int | None]]:
    return list(claimed.jobs), dict(claimed.died), dict(claimed.next_at_us)


@pytest.mark.long
@given(
    jobs=JOBS,
    wants=st.one_of(WANTS, WANTS.map(lambda wants: wants[:1])),
    limit=st.integers(1, 20),
    started=st.booleans(),
)
def test_many_lanes_are_claimed_from_as_each_by_itself(
    jobs: list[Job], wants: list[Want], limit: int, *, started: bool
) -> None:
    clock = HandClock()
    with TemporaryDirectory() as folder:
        model: Store = MemoryStore(clock)
        store = SqliteStore(Path(folder) / "jobs.db", clock=clock, synchronous="OFF")
        for each in (model, store):
            each.add(jobs)
        for turn in range(3):  # from the second on, the claims before have died
            expected = claimed(model, wants, limit, turn=turn)
            answer = claimed(store, wants, limit, turn=turn)
            assert told(answer) == told(expected)
            if started and answer.jobs:
                for each in (model, store):
                    job = answer.jobs[0]
                    each.settle([Extend(job, job.at_us, started=True)])
        store.close()
