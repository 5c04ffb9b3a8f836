"""Finished jobs and the rows of their history."""

from hypothesis import strategies as st

from dueline.core.attempt import Done, Ended
from dueline.core.job import Job, JobId, State
from dueline.core.lane import Lane
from dueline.core.store import Row
from dueline.jobs.history import attempt_of, row_of
from tests.harness.calls import row_of as job_row
from tests.harness.clocks import NOW_US


def claimed(number: int = 1, *, shard: int = 0, fence: int = 3) -> Job:
    """Make the row of a job that a worker has claimed."""
    return job_row(number)._replace(
        lane=Lane("mail", shard, 5, -7, "acme"),
        due_us=NOW_US - 50,
        enqueued_us=NOW_US - 60,
        claimed_us=NOW_US - 10,
        at_us=NOW_US + 90,
        fence=fence,
        worker="here:1:abcd",
        state=State.STARTED,
    )


TEXTS = st.text(st.characters(codec="utf-8"), max_size=9) | st.sampled_from(['"%d', "%b%%", "\\é"])


JOBS = st.builds(
    claimed()._replace,
    lane=st.builds(Lane, st.just("mail"), st.integers(0, 3), st.just(5), st.integers(-9, 9), TEXTS),
    id=st.binary(min_size=16, max_size=16).map(JobId),
    task=TEXTS,
    enqueued_us=st.integers(0, NOW_US),
    due_us=st.integers(0, NOW_US),
    claimed_us=st.integers(NOW_US, NOW_US + 1),
    worker=st.sampled_from(["here:1:abcd", "100%s"]),
    fence=st.integers(1, 2**31 - 1),
)


def done_of(jobs: list[Job]) -> list[Ended]:
    """Let jobs be done one after the other."""
    return [Ended(job, Done(b"7"), NOW_US + n, NOW_US + n + 3) for n, job in enumerate(jobs)]


def rows_of_each(done: list[Ended]) -> list[Row]:
    """Make the row that each would have by itself."""
    return [row_of(attempt_of(ended, outcome="done", error=""), ended.job) for ended in done]
