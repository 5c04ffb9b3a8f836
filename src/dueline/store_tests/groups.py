"""Laws of groups: all or nothing, conditions included."""

from dueline.core.job import Job
from dueline.core.store import NO_VERSION, Commit, Delete, Drop, Extend, Group, Put, Record, Store
from dueline.store_tests.calls import (
    LEASE_US,
    NOW_US,
    QUEUE,
    claim,
    lane_of,
    move,
    new_job,
    new_jobs,
    pointers_in,
    put_in,
    records_in,
    row_of,
    rows_in,
    stream_of,
    token_of,
)

ONE, TWO = bytes(token_of(1)), bytes(token_of(2))
NEXT = lane_of(priority=1)


def everything(store: Store) -> object:
    """Return everything that the groups of these laws change."""
    return (
        [rows_in(store, lane) for lane in (lane_of(), NEXT)],
        [records_in(store, partition) for partition in ("p", "q")],
        stream_of(store),
        pointers_in(store, QUEUE),
    )


def finish(job: Job, number: int, *, expect: bytes | None = None) -> Group:
    """Return a group that ends a job and inserts a result, a successor and a row of history."""
    return Group(
        verdicts=[Drop(job)],
        commits=[Commit("p", [Put(f"result {number}", ONE, b"done", expect)])],
        jobs=[new_job(1000 + number, lane=NEXT)],
        rows=[row_of(number)],
    )


class GroupLaws:
    """For every store: a group of one condition, its first write, is all or nothing."""

    def test_a_group_whose_conditions_hold_is_applied_as_a_whole(self, store: Store) -> None:
        put_in(store, *new_jobs(3))
        drop, extend, give_back = claim(store, lane_of()).jobs
        group = Group(
            verdicts=[Drop(drop), Extend(extend, extend.at_us + 9), move(give_back, NOW_US + 8)],
            commits=[
                Commit("p", [Put("a", ONE, b"1", NO_VERSION), Put("b", ONE, b"1")]),
                Commit("q", [Put("a", TWO, b"2")]),
            ],
            jobs=new_jobs(2, first=50, lane=NEXT),
            rows=[row_of(1), row_of(2)],
        )
        assert list(store.together([group])) == [True]
        assert [row.at_us for row in rows_in(store, lane_of())] == [NOW_US + 8, extend.at_us + 9]
        assert rows_in(store, NEXT) == new_jobs(2, first=50, lane=NEXT)
        assert NEXT in {pointer.lane for pointer in pointers_in(store)}
        assert records_in(store, "p") == [Record("a", ONE, b"1"), Record("b", ONE, b"1")]
        assert records_in(store, "q") == [Record("a", TWO, b"2")]
        assert stream_of(store) == [row_of(1), row_of(2)]

    def test_groups_are_independent_of_each_other(self, store: Store) -> None:
        put_in(store, *new_jobs(4))
        jobs = claim(store, lane_of()).jobs
        store.settle([Drop(jobs[1])])
        groups = [finish(job, number) for number, job in enumerate(jobs)]
        assert list(store.together(groups)) == [True, False, True, True]
        assert rows_in(store, lane_of()) == []
        assert rows_in(store, NEXT) == [new_job(1000 + number, lane=NEXT) for number in (0, 2, 3)]
        keys = [record.key for record in records_in(store, "p")]
        assert keys == ["result 0", "result 2", "result 3"]
        assert stream_of(store) == [row_of(number) for number in (0, 2, 3)]

    def test_a_later_group_sees_what_an_earlier_one_did(self, store: Store) -> None:
        put_in(store, new_job(1))
        (job,) = claim(store, lane_of()).jobs
        answers = store.together([finish(job, 1), finish(job, 2), finish(job, 3)])
        assert list(answers) == [True, False, False]
        assert [record.key for record in records_in(store, "p")] == ["result 1"]
        chain = [
            Group(commits=[Commit("q", [Put("a", ONE, b"1", NO_VERSION)])]),
            Group(commits=[Commit("q", [Put("a", TWO, b"2", NO_VERSION)])]),
            Group(commits=[Commit("q", [Put("a", TWO, b"2", ONE)])]),
        ]
        assert list(store.together(chain)) == [True, False, True]
        assert records_in(store, "q") == [Record("a", TWO, b"2")]

    def test_what_is_added_again_before_its_end_is_gone_after_it(self, store: Store) -> None:
        put_in(store, *new_jobs(2))
        first, second = claim(store, lane_of()).jobs
        groups = [
            Group(jobs=new_jobs(2)),
            Group(verdicts=[Drop(first)]),
            Group(verdicts=[move(second, NOW_US, to=NEXT)], jobs=new_jobs(1, first=2)),
        ]
        assert list(store.together(groups)) == [True, True, True]
        assert rows_in(store, lane_of()) == []
        assert [row.id for row in rows_in(store, NEXT)] == [second.id]

    def test_commits_of_groups_keep_their_order_in_each_partition(self, store: Store) -> None:
        first = Put("a", ONE, b"1", NO_VERSION)
        groups = [
            Group(commits=[Commit("p", [first]), Commit("q", [Put("x", ONE, b"1")])]),
            Group(commits=[Commit("q", [Put("x", TWO, b"2", ONE)]), Commit("p", [Delete("a")])]),
            Group(commits=[Commit("q", [first]), Commit("p", [first])]),
            Group(commits=[Commit("p", [Put("a", TWO, b"2", ONE), Put("b", TWO, b"2")])]),
        ]
        assert list(store.together(groups)) == [True, True, True, True]
        assert records_in(store, "p") == [Record("a", TWO, b"2"), Record("b", TWO, b"2")]
        assert records_in(store, "q") == [Record("a", ONE, b"1"), Record("x", TWO, b"2")]

    def test_a_refused_commit_stops_its_group_alone(self, store: Store) -> None:
        refused = Commit("p", [Put("a", ONE, b"1", TWO)])
        kept = Commit("p", [Put("a", ONE, b"1", NO_VERSION)])
        after = [Commit("q", [Put(f"{number}", ONE, b"1")]) for number in range(2)]
        groups = [Group(commits=[refused, after[0]]), Group(commits=[kept, after[1]])]
        assert list(store.together(groups)) == [False, True]
        assert records_in(store, "p") == [Record("a", ONE, b"1")]
        assert records_in(store, "q") == [Record("1", ONE, b"1")]

    def test_a_group_with_jobs_and_rows_alone_always_holds(self, store: Store) -> None:
        group = Group(jobs=new_jobs(2), rows=[row_of(1)])
        assert list(store.together([group, group])) == [True, True]
        assert rows_in(store, lane_of()) == new_jobs(2)
        assert stream_of(store) == [row_of(1)]
        assert list(store.together([Group()])) == [True]
        assert list(store.together([])) == []

    def test_a_large_group_adds_the_jobs_that_do_not_exist(self, store: Store) -> None:
        put_in(store, *new_jobs(3, first=50))
        claimed = claim(store, lane_of(), limit=2).jobs
        put = Put("a", ONE, b"1", NO_VERSION)
        group = Group(commits=[Commit("p", [put])], jobs=new_jobs(150))
        assert list(store.together([group])) == [True]
        expected = {job.id: job for job in new_jobs(150)} | {job.id: job for job in claimed}
        assert {job.id: job for job in rows_in(store, lane_of())} == expected
        assert records_in(store, "p") == [Record("a", ONE, b"1")]
        assert list(store.together([group])) == [False]

    def test_many_groups_are_applied_in_one_call(self, store: Store) -> None:
        put_in(store, *new_jobs(300))
        jobs = claim(store, lane_of(), most=300, limit=300).jobs
        groups = [finish(job, number) for number, job in enumerate(jobs)]
        assert list(store.together(groups)) == [True] * 300
        assert rows_in(store, lane_of()) == []
        assert len(rows_in(store, NEXT)) == len(stream_of(store)) == 300

    def test_a_stale_verdict_keeps_its_effects_away(self, store: Store) -> None:
        put_in(store, *new_jobs(2))
        stale, other = claim(store, lane_of()).jobs
        store.settle([move(stale, NOW_US + 9)])
        before = everything(store)
        assert list(store.together([finish(stale, 1)])) == [False]
        assert everything(store) == before
        assert list(store.together([finish(stale, 1), finish(other, 2)])) == [False, True]
        assert [record.key for record in records_in(store, "p")] == ["result 2"]
        assert stream_of(store) == [row_of(2)]

    def test_a_record_that_is_not_as_expected_keeps_the_rest_away(self, store: Store) -> None:
        assert store.commit("p", [Put("there", TWO, b"there")])
        before = everything(store)
        refused = Commit("p", [Put("there", ONE, b"1", NO_VERSION), Put("c", ONE, b"2")])
        group = Group(commits=[refused], jobs=new_jobs(2), rows=[row_of(1)])
        assert list(store.together([group])) == [False]
        assert everything(store) == before


class TogetherLaws:
    """For stores whose `together` is a transaction."""

    def test_a_stale_verdict_fails_its_whole_group(self, store: Store) -> None:
        put_in(store, *new_jobs(2))
        stale, _ = claim(store, lane_of()).jobs
        _, mine = claim(store, lane_of(), now_us=NOW_US + LEASE_US, token=2).jobs
        before = everything(store)
        fresh_first = finish(stale, 1)._replace(verdicts=[Drop(mine), Drop(stale)])
        stale_first = finish(stale, 1)._replace(verdicts=[Drop(stale), Drop(mine)])
        carried = finish(stale, 1)._replace(verdicts=[move(mine, 0, to=NEXT), Drop(stale)])
        for group in (finish(stale, 1), fresh_first, stale_first, carried):
            assert list(store.together([group])) == [False]
            assert everything(store) == before

    def test_an_expectation_that_fails_fails_its_whole_group(self, store: Store) -> None:
        put_in(store, new_job(1))
        assert store.commit("p", [Put("result 1", TWO, b"there")])
        (job,) = claim(store, lane_of()).jobs
        before = everything(store)
        held = Commit("q", [Put("a", ONE, b"1"), Put("b", ONE, b"1")])
        refused = Commit("p", [Delete("result 1"), Put("c", ONE, b"1", expect=ONE)])
        for group in (
            finish(job, 1, expect=NO_VERSION),
            finish(job, 1)._replace(commits=[held, refused]),
            finish(job, 1)._replace(commits=[refused, held]),
        ):
            assert list(store.together([group])) == [False]
            assert everything(store) == before
