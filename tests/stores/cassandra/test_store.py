"""What the Cassandra store does that no contract can ask for, on a real node (H1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from dueline.api.connect import open_store
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.errors import ConfigError, StoreUnavailable, Unknown
from dueline.core.job import Job, State
from dueline.core.lane import Pointer
from dueline.core.pagination import EVER
from dueline.core.store import NO_VERSION, Commit, Drop, Extend, Group, Move, Put, Verdict
from dueline.store_tests.calls import (
    LEASE_US,
    NOW_US,
    QUEUE,
    WIDTH_US,
    claim,
    id_of,
    ids_of,
    lane_of,
    move,
    new_job,
    new_jobs,
    pointers_in,
    put_in,
    row_of,
    rows_in,
    stream_of,
    token_of,
)
from tests.harness.cassandra_node import Keyspaces, expect_node, keyspaces_on_a_node

if TYPE_CHECKING:  # the driver may be absent
    from dueline.stores.cassandra.answers import Rows
    from dueline.stores.cassandra.session import Call
    from dueline.stores.cassandra.statements import Found
    from dueline.stores.cassandra.store import CassandraStore

expect_node()
pytestmark = pytest.mark.cassandra

END_US = NOW_US + LEASE_US
Send = Callable[[], Sequence[object]]
OTHER = lane_of(priority=7)


@pytest.fixture(scope="module")
def keyspaces() -> Iterator[Keyspaces]:
    with keyspaces_on_a_node() as keyspaces:
        yield keyspaces


@pytest.fixture
def url(keyspaces: Keyspaces) -> str:
    return keyspaces.fresh()


def opened(url: str) -> CassandraStore:
    from dueline.stores.cassandra.store import CassandraStore  # noqa: PLC0415  (needs the driver)

    store = open_store(url)
    assert isinstance(store, CassandraStore)
    return store


@pytest.fixture
def store(url: str) -> Iterator[CassandraStore]:
    store = opened(url)
    yield store
    store.close()


@pytest.fixture
def other(url: str) -> Iterator[CassandraStore]:
    store = opened(url)
    yield store
    store.close()


def once(
    monkeypatch: pytest.MonkeyPatch, store: CassandraStore, act: Callable[[Send], Sequence[object]]
) -> None:
    """Let the store's next conditional batches go through `act`, which may send them."""
    session = store._session
    send = session.decide_many
    left = [1]

    def decide_many(batches: Sequence[Sequence[Call]]) -> Sequence[object]:
        if batches and left[0]:
            left[0] = 0
            return act(lambda: send(batches))
        return send(batches)

    monkeypatch.setattr(session, "decide_many", decide_many)


def lose_answer(send: Send) -> Sequence[object]:
    return [Unknown("the answer was lost") for _ in send()]


def lose_request(send: Send) -> Sequence[object]:
    del send
    return [Unknown("the request was lost")]


def fail(*_: object) -> None:
    raise StoreUnavailable


def test_verdicts_of_which_some_were_applied_are_not_told_as_refused(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in(store, *new_jobs(1), *new_jobs(1, first=2, lane=OTHER))
    jobs = [*claim(store, lane_of()).jobs, *claim(store, OTHER, token=2).jobs]
    once(monkeypatch, store, lambda send: [*send()[:1], StoreUnavailable("refused")])
    with pytest.raises(Unknown):
        store.settle([Drop(job) for job in jobs])
    once(monkeypatch, store, lambda send: [StoreUnavailable("refused") for _ in send()])
    with pytest.raises(StoreUnavailable) as raised:
        store.settle([Drop(jobs[1])])
    assert not isinstance(raised.value, Unknown)


def test_a_claim_whose_answer_was_lost_is_read_back(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in(store, *new_jobs(3))
    once(monkeypatch, store, lose_answer)
    claimed = claim(store, lane_of())
    assert ids_of(claimed.jobs) == [id_of(1), id_of(2), id_of(3)]
    assert rows_in(store, lane_of()) == list(claimed.jobs)


def test_a_claim_whose_request_was_lost_is_made_again(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in(store, *new_jobs(3))
    once(monkeypatch, store, lose_request)
    assert len(claim(store, lane_of()).jobs) == 3
    assert {row.fence for row in rows_in(store, lane_of())} == {1}


def test_a_claim_that_cannot_be_read_back_runs_nothing(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in(store, *new_jobs(3))
    once(monkeypatch, store, lose_answer)
    monkeypatch.setattr(store._session, "read_serial", fail)
    with pytest.raises(StoreUnavailable):
        claim(store, lane_of())
    monkeypatch.undo()
    assert claim(store, lane_of(), token=2).jobs == []
    assert len(claim(store, lane_of(), now_us=END_US, token=3).jobs) == 3


def test_a_claim_on_a_reading_that_was_overtaken_takes_the_row_as_it_is(
    store: CassandraStore, other: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither time nor fence tell the change: only the token does."""
    put_in(store, new_job(1))

    def overtake(send: Send) -> Sequence[object]:
        (row,) = rows_in(other, lane_of())
        assert list(other.settle([move(row, row.at_us, errors=5)])) == [True]
        return send()

    once(monkeypatch, store, overtake)
    (job,) = claim(store, lane_of()).jobs
    assert (job.errors, job.fence) == (5, 1)
    assert rows_in(store, lane_of()) == [job]


def test_a_start_that_was_not_seen_at_the_reading_is_counted(
    store: CassandraStore, other: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An extension may say that a job was started, and leave its time as it is."""
    put_in(store, new_job(1))
    (held,) = claim(other, lane_of()).jobs

    def start(send: Send) -> Sequence[object]:
        assert list(other.settle([Extend(held, held.at_us, started=True)])) == [True]
        return send()

    once(monkeypatch, store, start)
    claimed = claim(store, lane_of(), now_us=END_US, token=2)
    assert [(job.crashes, job.alone) for job in claimed.jobs] == [(1, True)]
    assert claimed.died[id_of(1)].state == State.STARTED


VERDICTS: tuple[Callable[[Job], Verdict], ...] = (
    Drop,
    lambda job: Extend(job, END_US + 5),
    lambda job: Extend(job, END_US + 5, started=True),
    lambda job: move(job, NOW_US + 1),
    lambda job: move(job, NOW_US + 500 * SECOND_US),
    lambda job: move(job, NOW_US + 1, to=OTHER),
)


@pytest.mark.parametrize("lose", [lose_answer, lose_request])
@pytest.mark.parametrize("number", range(len(VERDICTS)))
def test_an_outcome_without_a_response_is_settled(
    store: CassandraStore,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    lose: Callable[[Send], Sequence[object]],
) -> None:
    put_in(store, *new_jobs(2))
    job, stays = claim(store, lane_of()).jobs
    once(monkeypatch, store, lose)
    assert list(store.settle([VERDICTS[number](job)])) == [True]
    told = [row for lane in (lane_of(), OTHER) for row in rows_in(store, lane)]
    assert stays in told
    assert list(store.settle([Drop(job._replace(token=token_of(77)))])) == [False]


def test_what_a_lost_verdict_finds_changed_by_others_was_refused(
    store: CassandraStore, other: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in(store, new_job(1))
    (job,) = claim(store, lane_of()).jobs

    def overtake(send: Send) -> Sequence[object]:
        del send
        assert list(other.settle([move(job, NOW_US + 1)])) == [True]
        return [Unknown()]

    once(monkeypatch, store, overtake)
    assert list(store.settle([Extend(job, END_US + 5)])) == [False]
    once(monkeypatch, store, lose_answer)
    monkeypatch.setattr(store._session, "read_serial", fail)
    with pytest.raises(Unknown):  # U2
        store.settle([Drop(job)])


def carried_halfway(store: CassandraStore, monkeypatch: pytest.MonkeyPatch, told: Move) -> None:
    """Leave a row as a stub: the carrier died before it inserted the target."""
    with monkeypatch.context() as patch:
        patch.setattr(store._verdicts, "carry", lambda _stubs: None)
        assert list(store.settle([told])) == [True]


def test_a_carry_that_was_left_is_completed_by_the_next_claimer(
    store: CassandraStore, other: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in(store, *new_jobs(2))
    told = move(new_job(1), NOW_US + 3, errors=4, to=OTHER)
    carried_halfway(store, monkeypatch, told)
    assert ids_of(claim(other, lane_of()).jobs) == [id_of(2)], "a stub is never run"
    (row,) = rows_in(other, OTHER)
    assert (row.errors, row.at_us, row.token, row.hop) == (4, NOW_US + 3, told.token, 1)
    assert OTHER in {pointer.lane for pointer in pointers_in(other)}
    assert list(store.settle([Drop(new_job(1))])) == [False]


def test_a_carry_that_was_left_is_completed_by_whoever_looks_the_job_up(
    store: CassandraStore, other: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in(store, new_job(1))
    carried_halfway(store, monkeypatch, move(new_job(1), NOW_US + 3, to=OTHER))
    (row,) = other.find([id_of(1)])
    assert row is not None
    assert rows_in(other, OTHER) == [row]
    assert list(other.settle([Drop(row)])) == [True]
    assert list(other.find([id_of(1)])) == [None]


def test_a_carry_that_was_left_is_completed_by_whoever_lists_its_lane(  # K4
    store: CassandraStore, other: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in(store, *new_jobs(2))
    carried_halfway(store, monkeypatch, move(new_job(1), NOW_US + 3, to=OTHER))
    assert ids_of(rows_in(other, lane_of())) == [id_of(2)]
    assert ids_of(claim(other, OTHER, now_us=NOW_US + 3).jobs) == [id_of(1)]


def test_completing_a_carry_again_brings_nothing_back(
    store: CassandraStore, other: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in(store, new_job(1))
    stubs: list[Found] = []
    monkeypatch.setattr(store._verdicts, "carry", stubs.extend)
    assert list(store.settle([move(new_job(1), NOW_US, to=OTHER)])) == [True]
    claim(other, lane_of())
    (job,) = claim(other, OTHER, token=2).jobs
    assert list(other.settle([Drop(job)])) == [True]
    monkeypatch.undo()
    store._verdicts.carry(stubs)
    assert rows_in(store, OTHER) == []
    assert rows_in(store, lane_of()) == []


def test_births_whose_writing_failed_are_unknown_and_may_be_sent_again(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = new_jobs(3)
    with monkeypatch.context() as patch:
        patch.setattr(store._session, "write_many", lambda calls: [Unknown() for _ in calls])
        patch.setattr(store._session, "write", lambda _: None)
        assert list(store.add(jobs)) == [False] * 3
    put_in(store, *jobs)
    assert rows_in(store, lane_of()) == jobs


def test_a_row_rests_where_it_is_unless_far_or_before_its_place(store: CassandraStore) -> None:
    put_in(store, *new_jobs(4))
    near, far, back, decided = claim(store, lane_of()).jobs
    verdicts = [
        move(near, NOW_US + 4 * SECOND_US),
        move(far, NOW_US + 6 * SECOND_US, token=1001),
        move(back, NOW_US - 1, token=1002),
        move(decided, NOW_US + 60 * SECOND_US, token=1003)._replace(outcome=b"done"),
    ]
    assert list(store.settle(verdicts)) == [True] * 4
    places = {row.id: (row.pos_us - NOW_US, row.hop) for row in rows_in(store, lane_of())}
    assert places == {
        near.id: (0, 0),
        far.id: (6 * SECOND_US, 1),
        back.id: (-1, 1),
        decided.id: (0, 0),
    }


def test_a_move_to_later_lists_nothing(store: CassandraStore) -> None:
    put_in(store, new_job(1))
    (job,) = claim(store, lane_of()).jobs
    assert list(store.settle([move(job, END_US + 900 * WIDTH_US)])) == [True]
    assert [pointer.listing for pointer in pointers_in(store)] == [lane_of().bucket]


def test_an_idle_poll_is_two_reads(store: CassandraStore, monkeypatch: pytest.MonkeyPatch) -> None:
    put_in(store, new_job(1))
    store.lanes(QUEUE, 0, until_bucket=lane_of().bucket, after=None, limit=100)
    reads: list[object] = []
    read_many = store._session.read_many

    def counted(calls: Sequence[Call]) -> list[Rows]:
        reads.extend(calls)
        return read_many(calls)

    monkeypatch.setattr(store._session, "read_many", counted)
    store.lanes(QUEUE, 0, until_bucket=lane_of().bucket, after=None, limit=100)
    assert len(reads) == 2


def test_conditional_commits_of_many_groups_take_one_exchange(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.commit("p7", [Put("a", bytes(token_of(9)), b"there")])
    session = store._session
    send, sizes = session.decide_many, []

    def decide_many(batches: Sequence[Sequence[Call]]) -> Sequence[object]:
        sizes.append(len(batches))
        return send(batches)

    monkeypatch.setattr(session, "decide_many", decide_many)
    opened = Put("a", bytes(token_of(1)), b"opened", NO_VERSION)
    groups = [Group(commits=[Commit(f"p{number}", [opened])]) for number in range(20)]
    assert list(store.together(groups)) == [number != 7 for number in range(20)]
    assert [size for size in sizes if size] == [20]


def test_shards_read_together_are_as_each_by_itself(store: CassandraStore) -> None:
    lanes = [
        lane_of(shard=shard, tenant=f"t{number}")
        for shard in range(3)
        for number in range(4 * shard)
    ]
    put_in(store, *(new_job(number, lane=lane) for number, lane in enumerate(lanes)))
    store.sweep(QUEUE, 2, now_us=NOW_US + 90 * SECOND_US, width_us=WIDTH_US)
    (first, *_) = pointers_in(store, shard=2)
    for after, limit in ((None, 1000), (None, 3), (first, 1000), (first, 2)):
        for until_bucket in (lane_of().bucket - 1, lane_of().bucket, EVER):
            starts: dict[int, Pointer | None] = {0: None, 1: None, 2: after, 3: None}
            pages = store.lanes_of(QUEUE, starts, until_bucket=until_bucket, limit=limit)
            assert pages == {
                shard: store.lanes(
                    QUEUE, shard, until_bucket=until_bucket, after=place, limit=limit
                )
                for shard, place in starts.items()
            }


def test_lanes_of_days_apart_are_read_together(store: CassandraStore) -> None:
    later = lane_of()._replace(shard=1, bucket=lane_of().bucket + 3 * DAY_US // WIDTH_US)
    put_in(store, new_job(1), new_job(2, lane=lane_of(shard=1)), new_job(3, lane=later))
    pages = store.lanes_of(QUEUE, {0: None, 1: None}, until_bucket=EVER, limit=100)
    assert [len(page.pointers) for page in pages.values()] == [1, 2]
    assert pages[1] == store.lanes(QUEUE, 1, until_bucket=EVER, after=None, limit=100)


def test_an_idle_poll_of_all_shards_is_two_reads(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in(store, *(new_job(number, lane=lane_of(shard=number)) for number in range(8)))
    shards: dict[int, Pointer | None] = dict.fromkeys(range(8))
    store.lanes_of(QUEUE, shards, until_bucket=lane_of().bucket, limit=100)
    reads: list[object] = []
    read_many = store._session.read_many

    def counted(calls: Sequence[Call]) -> list[Rows]:
        reads.extend(calls)
        return read_many(calls)

    monkeypatch.setattr(store._session, "read_many", counted)
    pages = store.lanes_of(QUEUE, shards, until_bucket=lane_of().bucket, limit=100)
    assert len(reads) == 2
    assert all(len(page.pointers) == 1 for page in pages.values())


def test_few_jobs_of_all_shards_are_inserted_by_three_requests(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # calls of several threads that share a write: their jobs are of all shards
    first, later = (
        [new_job(number + start, lane=lane_of(shard=number)) for number in range(8)]
        for start in (0, 8)
    )
    put_in(store, *first)
    sent: list[object] = []
    begin = store._session._begin

    def counted(asked: Iterable[object], *, is_write: bool) -> object:
        asked = list(asked)
        sent.extend(asked)
        return begin(asked, is_write=is_write)  # type: ignore[arg-type]

    monkeypatch.setattr(store._session, "_begin", counted)
    put_in(store, *later)
    assert len(sent) == 3  # places, rows, the check of the shards
    monkeypatch.undo()
    for job in (*first, *later):
        assert store.find([job.id]) == [job]


def test_the_shards_of_several_queues_are_checked_at_once(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes = [lane_of(queue=queue, shard=shard) for queue in ("a", "b") for shard in range(2)]
    put_in(store, *(new_job(number, lane=lane) for number, lane in enumerate(lanes)))
    sizes: list[int] = []
    read_many = store._session.read_many

    def counted(calls: Sequence[Call]) -> list[Rows]:
        sizes.append(len(calls))
        return read_many(calls)

    monkeypatch.setattr(store._session, "read_many", counted)
    put_in(store, *(new_job(10 + number, lane=lane) for number, lane in enumerate(lanes)))
    assert sizes == [2]


def test_a_put_whose_answer_was_lost_is_read_back(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    once(monkeypatch, store, lose_answer)
    assert store.commit("p", [Put("a", b"1", b"", b"")])
    monkeypatch.undo()
    once(monkeypatch, store, lose_request)
    assert store.commit("p", [Put("a", b"2", b"", b"1")])
    once(monkeypatch, store, lose_answer)
    monkeypatch.setattr(store._session, "read_serial", fail)
    with pytest.raises(Unknown):  # U2
        store.commit("p", [Put("a", b"3", b"", b"2")])


def test_rows_of_a_stream_may_lie_days_apart(store: CassandraStore) -> None:
    rows = [row_of(n, at_us=NOW_US + n * 86_400 * SECOND_US) for n in range(5)]
    assert list(store.append(rows)) == [row.at_us for row in rows]
    assert stream_of(store, page_size=2) == rows


def test_a_keyspace_that_is_missing_says_how_to_make_it(url: str) -> None:
    store = open_store(url.replace("/laws_", "/none_"))
    with pytest.raises(ConfigError, match="dueline migrate"):
        store.find([id_of(1)])
    store.close()


def test_making_the_tables_again_changes_nothing(store: CassandraStore) -> None:
    put_in(store, new_job(1))
    store.migrate()
    assert rows_in(store, lane_of()) == [new_job(1)]


def test_a_data_centre_that_is_not_there_is_told(url: str) -> None:
    store = open_store(url.replace("dc=datacenter1", "dc=moon"))
    with pytest.raises((ConfigError, StoreUnavailable), match=r"moon|does not answer"):
        store.clock_us()
    store.close()


def test_nodes_that_are_down_are_told_of(url: str) -> None:
    del url  # a driver is there
    store = open_store("cassandra://127.0.0.251:9/laws")
    with pytest.raises(StoreUnavailable, match="does not answer") as told:
        store.clock_us()
    assert not isinstance(told.value, Unknown)


def test_a_decided_row_goes_for_ever(store: CassandraStore) -> None:
    # rules P5, B1: whoever claimed it meanwhile, and whatever of it lands late
    put_in(store, new_job(1), new_job(2))
    job, other = claim(store, lane_of()).jobs
    outcome = move(job, END_US + 5)._replace(outcome=b"done")
    assert list(store.settle([outcome])) == [True]
    decided = job._replace(token=outcome.token, outcome=outcome.outcome)
    again = {row.id: row for row in claim(store, lane_of(), now_us=END_US + 6, token=9).jobs}
    assert list(store.settle([Drop(decided)])) == [True]
    assert list(store.settle([Drop(decided)])) == [True]
    late: list[Verdict] = [Extend(again[job.id], END_US * 2), Drop(again[other.id])]
    assert list(store.settle(late)) == [False, True]
    put_in(store, new_job(1))
    assert rows_in(store, lane_of()) == []
    assert store.find([job.id]) == [None]


def test_a_result_that_lands_late_leaves_the_newer_one(store: CassandraStore) -> None:
    # rule U3
    for at_us in (2, 1, 2):
        assert store.commit("p", [Put("k", token_of(at_us), b"%d" % at_us, at_us=at_us)])
    assert [(record.version, record.value) for record in store.read("p", after=None, limit=9)] == [
        (token_of(2), b"2")
    ]
