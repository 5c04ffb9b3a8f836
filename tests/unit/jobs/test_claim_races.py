"""Two who want to claim, extend or carry the same job."""

from contextlib import suppress

from dueline.core.job import Job, JobId
from dueline.core.store import Extend, Move
from dueline.jobs.queue import Queues
from tests.harness.calls import LEASE_US, claim_all, row_of
from tests.harness.interleaving import Turns, every_order
from tests.harness.job_races import JOB, SWITCHES_MAX, stage_of
from tests.harness.job_runs import STEPS_MAX, text_of
from tests.harness.lives import AFTER_LEASES_US, Stage, Stopped


def test_two_claimers_hold_each_job_once() -> None:
    rows = [row_of(number) for number in range(1, 4)]

    def lead(turns: Turns) -> None:
        stage = Stage(text_of, turns=turns)
        both = [stage.queues(), stage.queues()]
        both[0].enqueue_again(rows)
        for queues in both:
            queues.engine.time.latest_us()
        held: list[JobId] = []

        def claim(queues: Queues) -> None:
            held.extend(job.id for job in claim_all(queues, rows[0].lane, limit=2))

        turns.run([lambda: claim(both[0]), lambda: claim(both[1])])
        assert sorted(held) == [row.id for row in rows]

    assert every_order(lead) > 5


def test_who_claims_a_job_that_is_being_carried_completes_the_carry() -> None:
    for number in range(1, STEPS_MAX):
        stage, first, second = stage_of()
        (row,) = stage.rows()
        there = row.lane._replace(priority=5)
        move = Move(row, row.at_us, first.engine.ids.token(), row.lane.bucket, 0, 0, to=there)
        stage.stop_at = frozenset({stage.steps + number})
        with suppress(Stopped):
            assert list(first.engine.store.settle([move])) == [True]
        is_through = stage.steps < max(stage.stop_at)
        stage.stop_at = frozenset()
        jobs = claim_all(second, row.lane) + claim_all(second, there)
        assert [job.id for job in jobs] == [JOB]
        assert len(stage.rows()) == 1
        assert claim_all(stage.queues(), row.lane, there) == []
        if is_through:
            return
    raise AssertionError("the carry never runs through")


def test_a_late_extension_or_the_next_claimer_has_the_job_but_never_both() -> None:
    winners = set()

    def lead(turns: Turns) -> None:
        stage, first, second = stage_of()
        (job,) = claim_all(first)
        stage.clock.advance(us=AFTER_LEASES_US)
        until_us = stage.clock.wall_us() + LEASE_US
        stage.turns = turns
        extended: list[bool] = []
        taken: list[Job] = []
        turns.run(
            [
                lambda: extended.extend(first.engine.store.settle([Extend(job, until_us)])),
                lambda: taken.extend(claim_all(second)),
            ]
        )
        stage.turns = None
        (row,) = stage.rows()
        assert [row.token] == [holder.token for holder in taken or [job]]
        assert extended == [not taken]
        winners.add(len(taken))

    assert every_order(lead, switches_max=SWITCHES_MAX) > 5
    assert winners == {0, 1}


def test_a_job_is_claimed_or_carried_first_and_is_one_job_either_way() -> None:
    ways = set()

    def lead(turns: Turns) -> None:
        stage, first, second = stage_of()
        (row,) = stage.rows()
        there = row.lane._replace(priority=5)
        move = Move(row, row.at_us, first.engine.ids.token(), row.lane.bucket, 0, 0, to=there)
        stage.turns = turns
        carried: list[bool] = []
        taken: list[Job] = []
        turns.run(
            [
                lambda: carried.extend(first.engine.store.settle([move])),
                lambda: taken.extend(claim_all(second, row.lane)),
            ]
        )
        stage.turns = None
        taken += claim_all(stage.queues(), row.lane, there)
        assert [job.id for job in taken] == [JOB]
        assert [job.lane for job in stage.rows()] == [there if carried[0] else row.lane]
        ways.add(carried[0])

    assert every_order(lead, switches_max=SWITCHES_MAX) > 5
    assert ways == {True, False}
