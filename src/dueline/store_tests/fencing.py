"""Laws of tokens and fences."""

from collections.abc import Callable

from dueline.core.job import UNCLAIMED_TOKEN, Job, State
from dueline.core.lane import Pointer, bucket_of
from dueline.core.store import Drop, Extend, Move, Store, Verdict
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
    pointers_in,
    put_in,
    row_with,
    rows_in,
    token_of,
)

END_US = NOW_US + LEASE_US
ELSEWHERE = lane_of(priority=7)

VERDICTS: tuple[Callable[[Job], Verdict], ...] = (
    Drop,
    lambda job: Extend(job, END_US + LEASE_US),
    lambda job: Extend(job, END_US + LEASE_US, started=True),
    lambda job: move(job, NOW_US),
    lambda job: move(job, END_US + LEASE_US),
    lambda job: move(job, NOW_US, to=ELSEWHERE),
)


def assert_changes_nothing(store: Store, verdict: Verdict) -> None:
    """Check that an outcome is refused, and that rows and lane list do not change."""
    lanes = (lane_of(), ELSEWHERE)
    before = [rows_in(store, lane) for lane in lanes], pointers_in(store)
    assert list(store.settle([verdict])) == [False]
    assert before == ([rows_in(store, lane) for lane in lanes], pointers_in(store))


class FencingLaws:
    """A token identifies one version of a row; fences only grow."""

    def test_a_verdict_on_a_claim_that_was_taken_over_changes_nothing(self, store: Store) -> None:
        put_in(store, *new_jobs(2))
        stale = claim(store, lane_of(), token=1).jobs
        claim(store, lane_of(), now_us=END_US, token=2)
        for verdict_on in VERDICTS:
            assert_changes_nothing(store, verdict_on(stale[0]))

    def test_a_verdict_after_a_verdict_changes_nothing(self, store: Store) -> None:
        put_in(store, new_job(1))
        (stale,) = claim(store, lane_of()).jobs
        assert list(store.settle([move(stale, NOW_US + 3, token=5)])) == [True]
        for verdict_on in VERDICTS:
            assert_changes_nothing(store, verdict_on(stale))

    def test_a_verdict_on_a_job_that_was_carried_changes_nothing(self, store: Store) -> None:
        put_in(store, new_job(1))
        (stale,) = claim(store, lane_of()).jobs
        assert list(store.settle([move(stale, NOW_US, token=5, to=ELSEWHERE)])) == [True]
        for verdict_on in VERDICTS:
            assert_changes_nothing(store, verdict_on(stale))

    def test_a_verdict_on_a_new_row_never_changes_a_dead_one(self, store: Store) -> None:
        # Both have the token of a new row: the job became a dead-letter job after it was read.
        put_in(store, new_job(1))
        (stale,) = rows_in(store, lane_of())
        (claimed,) = claim(store, lane_of()).jobs
        assert list(store.settle([Drop(claimed)])) == [True]
        store.add([stale._replace(lane=ELSEWHERE, state=State.DEAD)])
        for verdict_on in VERDICTS:
            assert_changes_nothing(store, verdict_on(stale))

    def test_the_options_of_a_dead_row_change_in_place(self, store: Store) -> None:
        # A job that others wait for is marked, so that a retry releases them (rule J3).
        dead = new_job(1)._replace(lane=ELSEWHERE, state=State.DEAD)
        store.add([dead])
        marked = move(dead, dead.at_us)._replace(state=State.DEAD, opts=b'{"has_dependents":true}')
        assert list(store.settle([marked])) == [True]
        (row,) = rows_in(store, ELSEWHERE)
        assert (row.state, row.at_us, row.opts) == (State.DEAD, dead.at_us, marked.opts)
        assert list(store.settle([marked._replace(token=token_of(7))])) == [False]

    def test_a_verdict_on_a_job_that_is_gone_changes_nothing(self, store: Store) -> None:
        put_in(store, new_job(1))
        (stale,) = claim(store, lane_of()).jobs
        assert list(store.settle([Drop(stale)])) == [True]
        for verdict_on in VERDICTS:
            assert_changes_nothing(store, verdict_on(stale))
        assert list(store.find([id_of(1)])) == [None]

    def test_a_verdict_with_a_token_of_another_job_changes_nothing(self, store: Store) -> None:
        put_in(store, *new_jobs(2))
        (held,) = claim(store, lane_of(), limit=1).jobs
        for verdict_on in VERDICTS:
            assert_changes_nothing(store, verdict_on(new_job(2)._replace(token=held.token)))

    def test_a_late_outcome_is_accepted_without_another_claim(self, store: Store) -> None:
        put_in(store, *new_jobs(3))
        extended, moved, dropped = claim(store, lane_of()).jobs
        claim(store, lane_of(), now_us=NOW_US + 1, token=2)
        far_us = END_US + 1000 * LEASE_US
        verdicts: list[Verdict] = [Extend(extended, far_us), move(moved, far_us), Drop(dropped)]
        assert list(store.settle(verdicts)) == [True, True, True]
        assert [(row.id, row.at_us) for row in rows_in(store, lane_of())] == [
            (id_of(1), far_us),
            (id_of(2), far_us),
        ]

    def test_a_fence_grows_by_one_with_each_claim_and_never_falls(self, store: Store) -> None:
        put_in(store, new_job(1))
        (job,) = claim(store, lane_of(), token=1).jobs
        assert job.fence == 1
        (job,) = claim(store, lane_of(), now_us=END_US, token=2).jobs
        assert job.fence == 2
        store.settle([Extend(job, END_US + 9)])
        store.settle([move(job, NOW_US, token=3)])
        assert row_with(store, job.id).fence == 2
        (job,) = claim(store, lane_of(), token=4).jobs
        assert job.fence == 3
        store.settle([move(job, NOW_US, token=5, to=ELSEWHERE)])
        (job,) = claim(store, ELSEWHERE, token=6).jobs
        assert job.fence == 4

    def test_an_extension_keeps_the_token(self, store: Store) -> None:
        put_in(store, new_job(1))
        (job,) = claim(store, lane_of()).jobs
        assert list(store.settle([Extend(job, END_US + 1, started=True)])) == [True]
        assert row_with(store, job.id) == job._replace(at_us=END_US + 1, state=State.STARTED)
        assert list(store.settle([Extend(job, END_US + 2)])) == [True]
        assert list(store.settle([Drop(job)])) == [True]

    def test_an_extension_never_ends_a_claim_sooner(self, store: Store) -> None:
        put_in(store, *new_jobs(3))
        jobs = claim(store, lane_of()).jobs
        assert list(store.settle([Extend(job, END_US + 9) for job in jobs])) == [True] * 3
        late = [
            Extend(jobs[0], END_US + 1),
            Extend(jobs[1], END_US + 2, started=True),
            Extend(jobs[2], END_US + 10),
        ]
        assert list(store.settle(late)) == [True] * 3
        assert {row.id: (row.at_us, row.state) for row in rows_in(store, lane_of())} == {
            jobs[0].id: (END_US + 9, State.CLAIMED),
            jobs[1].id: (END_US + 9, State.STARTED),
            jobs[2].id: (END_US + 10, State.CLAIMED),
        }
        assert ids_of(claim(store, lane_of(), now_us=END_US + 8, token=2).jobs) == []
        assert len(claim(store, lane_of(), now_us=END_US + 10, token=3).jobs) == 3

    def test_a_move_writes_what_it_says_and_nothing_else(self, store: Store) -> None:
        put_in(store, new_job(1))
        (job,) = claim(store, lane_of(), worker="host:1").jobs
        sent = Move(
            job,
            NOW_US + 3,
            token_of(9),
            listing=bucket_of(NOW_US + 3, 10_000_000),
            errors=2,
            crashes=3,
            alone=True,
            state=State.WAITING,
            outcome=b"\x00outcome",
            error="ValueError: schief gegangen: ä€😀",
        )
        assert list(store.settle([sent])) == [True]
        row = row_with(store, job.id)
        assert row == job._replace(
            at_us=sent.at_us,
            token=sent.token,
            errors=2,
            crashes=3,
            alone=True,
            state=State.WAITING,
            outcome=sent.outcome,
            error=sent.error,
            worker=row.worker,
            pos_us=row.pos_us,
            hop=row.hop,
        )

    def test_a_move_may_change_the_options_of_a_call(self, store: Store) -> None:
        put_in(store, *new_jobs(3))
        tagged = b'{"tags":["red"]}'
        before = rows_in(store, lane_of())
        changed = [move(row, row.at_us, token=9)._replace(opts=tagged) for row in before[:2]]
        assert list(store.settle([*changed, changed[0]])) == [True, True, False]
        again = move(row_with(store, id_of(2)), before[1].at_us, token=10)
        assert list(store.settle([again._replace(opts=b"")])) == [True]
        rows = [row_with(store, id_of(number)) for number in (1, 2, 3)]
        assert [row.opts for row in rows] == [tagged, b"", b""]
        assert [row._replace(opts=b"", token=UNCLAIMED_TOKEN, hop=0) for row in rows] == before
        put_in(store, new_job(1))  # again: later changes stay
        assert [row.opts for row in rows_in(store, lane_of())] == [tagged, b"", b""]
        claimed = claim(store, lane_of(), token=11).jobs
        assert [(job.id, job.opts) for job in claimed] == [
            (id_of(1), tagged), (id_of(2), b""), (id_of(3), b"")
        ]  # fmt: skip

    def test_a_move_may_change_the_due_time_of_a_call(self, store: Store) -> None:
        put_in(store, *new_jobs(3))
        before = rows_in(store, lane_of())
        times = [(NOW_US + 60_000_000, 60_000_000), (NOW_US + 2, 2), (NOW_US - 7, -7)]
        moves = [
            move(row, at_us, token=9)._replace(due_us=row.due_us + more)
            for row, (at_us, more) in zip(before, times, strict=True)
        ]
        assert list(store.settle([*moves, moves[0]])) == [True, True, True, False]
        put_in(store, *new_jobs(3))  # again: later changes stay
        rows = [row_with(store, id_of(number)) for number in (1, 2, 3)]
        changes = [row.due_us - old.due_us for row, old in zip(rows, before, strict=True)]
        assert changes == [60_000_000, 2, -7]
        assert [row.at_us for row in rows] == [move.at_us for move in moves]
        kept = move(rows[0], NOW_US, token=10)  # without one, the due time stays
        assert list(store.settle([kept])) == [True]
        assert row_with(store, id_of(1)).due_us == rows[0].due_us
        claimed = claim(store, lane_of(), now_us=NOW_US + 2, token=11).jobs
        assert {job.id: job.due_us for job in claimed} == {row.id: row.due_us for row in rows}

    def test_a_row_that_was_read_can_be_decided_on_by_its_reader(self, store: Store) -> None:
        put_in(store, *new_jobs(2))
        first, second = rows_in(store, lane_of())
        assert list(store.settle([Drop(first), move(second, NOW_US + 5)])) == [True, True]
        assert [row.at_us for row in rows_in(store, lane_of())] == [NOW_US + 5]

    def test_a_reader_who_was_overtaken_by_a_claim_decides_nothing(self, store: Store) -> None:
        put_in(store, new_job(1))
        (read,) = rows_in(store, lane_of())
        claim(store, lane_of())
        for verdict_on in VERDICTS:
            assert_changes_nothing(store, verdict_on(read))

    def test_each_verdict_of_a_call_stands_on_its_own(self, store: Store) -> None:
        put_in(store, *new_jobs(4))
        first, second, third, fourth = claim(store, lane_of()).jobs
        store.settle([Drop(second)])
        extend = Extend(fourth, END_US + 1)
        verdicts: list[Verdict] = [Drop(first), Drop(second), move(third, NOW_US), extend]
        assert list(store.settle(verdicts)) == [True, False, True, True]
        assert list(store.settle([])) == []

    def test_one_of_two_endings_in_a_call_holds(self, store: Store) -> None:
        put_in(store, *new_jobs(2))
        first, second = claim(store, lane_of()).jobs
        assert sorted(store.settle([Drop(first), Drop(first)])) == [False, True]
        assert sorted(store.settle([move(second, NOW_US), Drop(second)])) == [False, True]

    def test_a_carried_job_takes_new_options_with_it(self, store: Store) -> None:
        put_in(store, new_job(1))
        (job,) = claim(store, lane_of()).jobs
        sent = move(job, NOW_US + 4, to=ELSEWHERE)._replace(opts=b"new")
        assert list(store.settle([sent])) == [True]
        assert [row.opts for row in rows_in(store, ELSEWHERE)] == [b"new"]

    def test_a_carried_job_keeps_what_it_is(self, store: Store) -> None:
        put_in(store, new_job(1, body=b"\x00" * 5000))
        (job,) = claim(store, lane_of()).jobs
        dead = lane_of(queue="laws!dead", tenant="a tenant")
        sent = move(job, NOW_US + 4, errors=3, to=dead)._replace(error="why", state=State.DEAD)
        assert list(store.settle([sent])) == [True]
        assert rows_in(store, lane_of()) == []
        (row,) = rows_in(store, dead)
        assert row == job._replace(
            lane=dead,
            pos_us=NOW_US + 4,
            hop=row.hop,
            at_us=NOW_US + 4,
            token=sent.token,
            errors=3,
            state=State.DEAD,
            error="why",
            worker=row.worker,
        )
        assert row.hop > job.hop
        assert list(store.find([job.id])) == [row]
        assert pointers_in(store, "laws!dead") == [Pointer(sent.listing, dead)]
