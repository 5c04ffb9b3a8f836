"""What a worker holds, while its beat loses some of it."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import pytest

from dueline.core.job import Job
from dueline.core.queue_settings import QueueSettings
from dueline.worker.assignment import Assignment
from dueline.worker.claimer import ClaimedJob
from dueline.worker.held_jobs import HeldJobs
from tests.harness.calls import row_of


def held(*jobs: Job) -> HeldJobs:
    """Hold jobs, each with its first arguments."""
    held_jobs = HeldJobs({}, lambda _: QueueSettings())
    held_jobs.add(jobs)
    taken = [ClaimedJob(job, None) for job in jobs]
    held_jobs.keep(taken, {job.id: b"[7]" for job in jobs}, of=taken)
    return held_jobs


def test_jobs_are_given_what_they_are_to_be_given() -> None:
    job, other = row_of(1), row_of(2)
    assert [each.given for each in held(job, other).assignments([job, other])] == [b"[7]"] * 2


def test_a_job_that_is_lost_before_it_is_said_how_it_is_run_is_not_run() -> None:
    # rule W4: it would be called without what other steps gave
    job, other = row_of(1), row_of(2)
    held_jobs = held(job, other)
    held_jobs.drop([job])
    assert [(each.job, each.given) for each in held_jobs.assignments([job, other])] == [
        (other, b"[7]")
    ]


def test_nor_is_one_that_is_lost_in_that_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    job, other = row_of(1), row_of(2)
    held_jobs = held(job, other)
    holding: Any = import_module("dueline.worker.held_jobs")
    whole = holding.assigned

    def lose(jobs: Sequence[Job], *rest: object) -> list[Assignment]:
        held_jobs.drop([job])
        told: list[Assignment] = whole(jobs, *rest)
        return told

    monkeypatch.setattr(holding, "assigned", lose)
    assert [each.job for each in held_jobs.assignments([job, other])] == [other]


def test_an_earlier_claim_is_neither_held_nor_dropped_in_the_place_of_a_later_one() -> None:
    earlier = row_of(1)
    later, copied = earlier._replace(fence=earlier.fence + 1), row_of(1)
    jobs = held(earlier)
    jobs.marked.add(earlier.claim())
    jobs.settling([copied])  # as it was read again
    assert (jobs.is_unsettled(earlier), jobs.unsettled) == (False, 0)
    jobs.add([later])
    assert (jobs.is_unsettled(later), jobs.is_unsettled(earlier), jobs.unsettled) == (
        True,
        False,
        1,
    )
    jobs.drop([earlier])
    assert (jobs.jobs(), jobs.marked) == ([later], set())
    assert [claimed.job for claimed in jobs.still([ClaimedJob(earlier, None)])] == []
    assert jobs.unmarked([earlier, later], over=()) == [later]
    jobs.drop([later._replace(at_us=later.at_us + 1)])  # the same claim, extended
    assert (jobs.jobs(), len(jobs), jobs.assignments([later])) == ([], 0, [])
