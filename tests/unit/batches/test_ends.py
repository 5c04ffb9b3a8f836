"""Ends of jobs in batches: what is known is what all records say together, joined or not."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dueline.batches import ends
from dueline.batches.ends import AGAIN, DONE, SLICE, End
from dueline.core.batch_ids import BatchId, batch_id, ids_at, position_of
from dueline.core.errors import StoreCorrupt
from dueline.core.ids import Ids
from dueline.core.job import JobId
from dueline.core.store import Group, Put, Record, Store
from dueline.stores.memory.store import MemoryStore
from tests.harness.clocks import HandClock

BATCH = batch_id(Ids().one(1_700_000_000_000_000))
NOW_US = 1_700_000_000_000_000
POSITIONS = (0, 1, 7, 8, 300, SLICE - 1, SLICE, SLICE + 1, 2**24 - 1)


def store() -> Store:
    """Make an empty store."""
    return MemoryStore(HandClock(NOW_US))


def end(position: int, state: str = DONE, hop: int = 0) -> End:
    """Make an end."""
    return End(ids_at(BATCH, [position])[0], hop, state, NOW_US)


def write(records: Store, *some: End) -> None:
    """Store ends, as one process does."""
    records.together([Group(commits=ends.commits_of(some))])


def states_of(slices: Mapping[int, Mapping[str, int]]) -> dict[int, str]:
    """Return the state of each job that is known."""
    return {
        position: state
        for number, states in slices.items()
        for state, marks in states.items()
        for position in ends.positions_in(number, marks)
    }


def test_ids_say_batch_and_position() -> None:
    assert [position_of(job_id) for job_id in ids_at(BATCH, POSITIONS)] == list(POSITIONS)
    ids = ids_at(BATCH, POSITIONS)
    assert list(ids) == sorted(ids)
    assert all(job_id.hex()[12] == "8" and job_id.hex()[16] in "89ab" for job_id in ids)


def test_jobs_of_no_batch_are_skipped() -> None:
    plain = Ids().one(NOW_US)
    assert ends.commits_of([End(plain, 0, DONE, NOW_US)]) == []


def test_the_last_end_of_a_job_counts() -> None:
    records = store()
    write(records, end(1, DONE, 2), end(2, "dead", 2))
    write(records, end(1, "dead"), end(2, "dead"), end(3, "dead"))
    write(records, end(3, AGAIN, 1))
    assert states_of(ends.read(records, BATCH)) == {1: DONE, 2: "dead", 3: AGAIN}
    assert not ends.has_ended(ends.read(records, BATCH), 3)
    assert ends.has_ended(ends.read(records, BATCH), 1)


def test_slices_before_a_number_are_skipped() -> None:
    records = store()
    write(records, *map(end, POSITIONS))
    read = ends.read(records, BATCH, after=0)
    assert set(states_of(read)) == {SLICE, SLICE + 1, 2**24 - 1}


def test_many_records_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "RECORDS_MAX", 3)
    records = store()
    for position in (1, 2, 3, SLICE):
        write(records, end(position))
    joined = ends.join(records, BATCH, NOW_US)
    assert states_of(joined) == dict.fromkeys((1, 2, 3, SLICE), DONE)
    assert len(records.read(ends.partition_of(BATCH), after=None, limit=100)) == 2
    assert ends.read(records, BATCH) == joined


def test_a_whole_record_stays() -> None:
    records = store()
    write(records, end(1), end(2))
    write(records, end(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ends, "RECORDS_MAX", 2)
        ends.join(records, BATCH, NOW_US)
    assert states_of(ends.join(records, BATCH, NOW_US)) == {1: DONE, 2: DONE}


def test_no_end_is_overwritten() -> None:
    records = store()
    write(records, end(1), end(2))
    write(records, end(1), end(3))
    assert states_of(ends.read(records, BATCH)) == dict.fromkeys((1, 2, 3), DONE)


def test_a_damaged_record_is_named() -> None:
    records = store()
    partition = ends.partition_of(BATCH)
    records.commit(partition, [Put("000/00000/done/x", b"v", b"no zlib")])
    with pytest.raises(StoreCorrupt, match="000/00000/done/x of a batch is damaged"):
        ends.read(records, BATCH)


class StaleStore(MemoryStore):
    """A store of which one process reads an earlier state."""

    def __init__(self) -> None:
        super().__init__(HandClock(NOW_US))
        self.seen: list[Record] | None = None

    def read(self, partition: str, *, after: str | None, limit: int) -> list[Record]:
        if self.seen is not None:
            later = [record for record in self.seen if after is None or record.key > after]
            return later[:limit]
        return list(super().read(partition, after=after, limit=limit))


ENDS = st.builds(
    end,
    st.sampled_from(POSITIONS[:4]),
    st.sampled_from([DONE, "dead"]),
    st.sampled_from([0, 2]),
)


@given(steps=st.lists(st.one_of(st.lists(ENDS, min_size=1), st.sampled_from(["look", "join"]))))
def test_processes_that_join_lose_nothing(steps: list[list[End] | str]) -> None:
    """Join what was read at any earlier time, while ends are written and written again."""
    records, before = StaleStore(), list[Record]()
    known: dict[JobId, dict[int, str]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ends, "RECORDS_MAX", 2)
        for step in steps:
            if step == "look":
                before = records.read(ends.partition_of(BATCH), after=None, limit=1000)
            elif step == "join":
                records.seen = before
                ends.join(records, BATCH, NOW_US)
                records.seen = None
            else:
                wanted = {(one.job_id, one.hop): one for one in step if isinstance(one, End)}
                some = [one for one in wanted.values() if known.get(one.job_id, {}).get(
                    one.hop, one.state) == one.state]  # fmt: skip
                write(records, *some)
                for one in some:
                    known.setdefault(one.job_id, {})[one.hop] = one.state
    expected = {position_of(job_id): hops[max(hops)] for job_id, hops in known.items()}
    assert states_of(ends.read(records, BATCH)) == expected


def test_a_batch_id_is_no_job() -> None:
    assert isinstance(BATCH, bytes)
    assert len(BatchId(BATCH)) == 13
