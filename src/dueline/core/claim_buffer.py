"""How many jobs a worker claims ahead: rules that a simulation of workers shares."""

from collections.abc import Sequence
from typing import Final

RUN_KEPT: Final = 0.97
"""Weight of the known run time against one shorter job: half remains after 23 jobs."""

WAIT_US_MAX: Final = 250_000
"""Maximum time that a claimed job waits behind others in one worker: five times what the buffer is
meant to hold, so that a machine that is slow for a moment releases nothing.
"""

CLAIM_SHARE, CLAIM_SHARE_FAR = 4, 2
"""The part of the buffer, 1/4 or 1/2, that must be free for a claim while jobs wait in it."""


def learn_run_us(known_us: float, took_us: Sequence[int]) -> float:
    """Return the new estimate of run times after some jobs: it rises at once and falls slowly.

    An average that falls quickly makes workers claim too many jobs after a few short ones, so
    that long jobs wait after their claim.

    Args: known_us: the last estimate, 0 for none. took_us: run times, at least one.
    """
    mean_us = sum(took_us) / len(took_us)
    keep = RUN_KEPT ** len(took_us)
    return max(mean_us, keep * known_us + (1 - keep) * mean_us)


def buffer_size(run_us: float, threads: int, *, work_us: int = 50_000, most: int = 1000) -> int:
    """Return how many jobs to hold beyond the running ones: `work_us` of work, at most `most`.

    Args: run_us: mean run time of a job, 0 if unknown. threads: number of threads.
    """
    return min(most, int(work_us * threads / run_us)) if run_us else 0


def is_room_worth_claiming(room: int, most: int, *, is_far: bool, has_waiting: bool) -> bool:
    """Return whether a claim is worth it: room for enough jobs, or none waits in the buffer."""
    share = CLAIM_SHARE_FAR if is_far else CLAIM_SHARE
    return room >= max(1, most // share) or not has_waiting
