"""Two who want to claim, extend or carry the same job."""

from contextlib import suppress

from dueline.core.store import Move
from tests.harness.calls import claim_all
from tests.harness.cases import jobs_claim_races as cases
from tests.harness.job_races import JOB, stage_of
from tests.harness.job_runs import STEPS_MAX
from tests.harness.lives import Stopped


def test_two_claimers_hold_each_job_once() -> None:
    cases.two_who_claim_hold_each_job_once()


def test_who_claims_a_job_that_is_being_carried_completes_the_carry() -> None:
    for number in range(1, STEPS_MAX):
        stage, one, two = stage_of()
        (row,) = stage.rows()
        there = row.lane._replace(priority=5)
        move = Move(row, row.at_us, one.engine.ids.token(), row.lane.bucket, 0, 0, to=there)
        stage.stop_at = frozenset({stage.steps + number})
        with suppress(Stopped):
            assert list(one.engine.store.settle([move])) == [True]
        is_through = stage.steps < max(stage.stop_at)
        stage.stop_at = frozenset()
        found = claim_all(two, row.lane) + claim_all(two, there)
        assert [job.id for job in found] == [JOB]
        assert len(stage.rows()) == 1
        assert claim_all(stage.queues(), row.lane, there) == []
        if is_through:
            return
    raise AssertionError("the carry never runs through")


def test_a_late_extension_or_the_next_claimer_has_the_job_but_never_both() -> None:
    cases.a_late_extension_or_the_next_claimer_has_the_job_but_never_both()


def test_a_job_is_claimed_or_carried_first_and_is_one_job_either_way() -> None:
    cases.a_job_is_claimed_or_carried_first_and_is_one_job_either_way()
