"""Checks after the demo."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from dueline.core.attempt import Attempt
from examples.demo.facts import Facts, Story
from examples.demo.files import can_parse
from examples.demo.tasks import FAILURES, Trouble

EARLY_US_MAX = 1_000
FINAL = ("done", "dead")


class Check(NamedTuple):
    """A statement, and whether it holds."""

    text: str
    holds: bool


def checks(story: Story, facts: Facts) -> Sequence[Check]:
    """Check the facts; the last check proves that no job was lost or duplicated."""
    return [
        _never_early(facts),
        _troubles_ended(story, facts),
        _only_these_died(story, facts),
        _killed_worker_lost_nothing(story, facts),
        _one_outcome_each(facts),
        _all_accounted_for(story, facts),
    ]


def crashes(facts: Facts) -> Sequence[Attempt]:
    """Return the attempts that crashed their process, as the surviving worker reported them."""
    return [
        one
        for one in facts.attempts
        if one.started_us and (one.outcome == "crashed" or "Poison" in one.error)
    ]


def recovered(story: Story, facts: Facts) -> set[str]:
    """Return the jobs that the killed worker held, and that another one ended."""
    ended = {
        one.job
        for one in facts.attempts
        if one.outcome in FINAL and not story.killed.owns(one.worker)
    }
    return ended & set(story.held)


def _never_early(facts: Facts) -> Check:
    starts = [one for one in facts.attempts if one.started_us]
    return Check(
        f"No job started before its due time ({len(starts):,} starts).",
        all(one.started_us >= one.due_us - EARLY_US_MAX for one in starts),
    )


def _troubles_ended(story: Story, facts: Facts) -> Check:
    fail = story.with_trouble(Trouble.FAILS_TWICE)
    crash = story.with_trouble(Trouble.CRASHES_ONCE)
    retried = Counter(one.job for one in facts.attempts if one.outcome == "retried")
    crashed = Counter(one.job for one in crashes(facts))
    return Check(
        f"{len(fail)} jobs failed twice and {len(crash)} crashed once; all then succeeded.",
        all(retried[job] == FAILURES and job in facts.results for job in fail)
        and all(crashed[job] == 1 and job in facts.results for job in crash)
        and retried.keys() == set(fail),
    )


def _only_these_died(story: Story, facts: Facts) -> Check:
    poison = story.with_trouble(Trouble.CRASHES_ALWAYS)
    broken = [job for job in facts.dead if job not in poison]
    return Check(
        f"Dead-letter jobs: {len(poison)} that always crashed, {len(broken)} unparsable files.",
        bool(broken)
        and all(facts.dead.get(job, "").startswith("Poison") for job in poison)
        and not any(can_parse(story.jobs[job].path) for job in broken)
        and all(": " in facts.dead[job] and "Error" in facts.dead[job] for job in broken),
    )


def _killed_worker_lost_nothing(story: Story, facts: Facts) -> Check:
    taken_over = recovered(story, facts)
    # An outcome that was in transit to the store when the worker was killed may still count.
    settled = {
        one.job for one in facts.attempts if one.outcome in FINAL and story.killed.owns(one.worker)
    }
    return Check(
        f"The killed worker held {len(story.held)} jobs: {len(taken_over)} recovered, none lost.",
        bool(story.held) and taken_over | settled >= set(story.held),
    )


def _one_outcome_each(facts: Facts) -> Check:
    finals = Counter((one.job, one.outcome) for one in facts.attempts if one.outcome in FINAL)
    wanted = {(job, "done") for job in facts.results} | {(job, "dead") for job in facts.dead}
    return Check(
        "The history has exactly one final outcome for each job, and agrees with the queue.",
        finals == dict.fromkeys(wanted, 1),
    )


def _all_accounted_for(story: Story, facts: Facts) -> Check:
    paths = [result.path for result in facts.results.values()]
    paths += [story.jobs[job].path for job in facts.dead]
    return Check(
        f"Proof: {len(story.jobs):,} files = {len(facts.results):,} results + "
        f"{len(facts.dead)} dead-letter jobs, each exactly once.",
        sorted(paths) == sorted(one.path for one in story.jobs.values()) and not facts.waiting,
    )
