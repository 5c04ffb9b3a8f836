"""Redriving dead jobs, selected by their failures in the tables.

Like `dueline dead retry`, it moves the row of the dead job and creates no second job, so repeating
it or resuming it duplicates nothing. Each death is redriven once: if the job dies again, that is
another death, which appears in the tables later.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from dueline.core.job import Job, JobId, State
from dueline.jobs.queue import Queues
from dueline.spark.pipeline.queries import Queries, View, lines_of, text_of

PAGE: Final = 500
DEATHS: Final = text_of("deaths")


class Wanted(NamedTuple):
    """A filter of deaths; empty fields match all.

    Attributes:
        error: Part of the error, or its fingerprint as in the table `poison`.
        until_us: Time before which the job died.
    """

    queues: Sequence[str] = ()
    task: str = ""
    error: str = ""
    since_us: int = 0
    until_us: int = (1 << 63) - 1


class Death(NamedTuple):
    """The last death of a job in the tables.

    Attributes:
        attempt: The attempt that died.
        has_started: Whether its handler was called.
        error: Fingerprint of the error.
    """

    job_id: str
    attempt: int
    has_started: bool
    queue: str
    task: str
    error: str


_kind_of = attrgetter("queue", "task", "error")


class Kind(NamedTuple):
    """Deaths of one kind: their number in the tables, and how many of the jobs are still dead."""

    queue: str
    task: str
    error: str
    deaths: int
    dead: int


def deaths(queries: Queries, silver: View, wanted: Wanted) -> list[Death]:
    """Return the last death of each matching job, from silver."""
    values = wanted._asdict() | {"queues": list(wanted.queues), "all_queues": not wanted.queues}
    return [Death(**line) for line in lines_of(queries.run(DEATHS, {"silver": silver}, values))]


def kinds(queues: Queues, deaths: Sequence[Death]) -> list[Kind]:
    """Count deaths by kind, the kinds with most dead jobs first."""
    recorded = Counter(map(_kind_of, deaths))
    dead = Counter(_kind_of(death) for page in _dead(queues, deaths) for death, _ in page)
    counts = [
        Kind(queue, task, error, count, dead[queue, task, error])
        for (queue, task, error), count in recorded.items()
    ]
    return sorted(counts, key=lambda kind: (-kind.dead, kind))


def redrive(queues: Queues, deaths: Sequence[Death], say: Callable[[str], None]) -> int:
    """Retry the jobs that are still dead, page by page; return how many will run."""
    done = 0
    for page in _dead(queues, deaths):
        done += queues.retry_all([row for _, row in page])
        say(f"redrive: {done:,} jobs")
    return done


def _dead(queues: Queues, deaths: Sequence[Death]) -> Iterator[list[tuple[Death, Job]]]:
    """Yield pages of deaths whose jobs are still dead, with their rows."""
    for start in range(0, len(deaths), PAGE):
        page = deaths[start : start + PAGE]
        rows = queues.engine.store.find([JobId(bytes.fromhex(death.job_id)) for death in page])
        pairs = zip(page, rows, strict=True)
        yield [(death, row) for death, row in pairs if row is not None and _died_so(death, row)]


def _died_so(death: Death, row: Job) -> bool:
    """Return whether a row is of a job that died so and has not been claimed since.

    A worker that finds that too many workers died claims the job once more to mark it dead.
    """
    if row.state != State.DEAD or row.outcome:
        return False
    return row.fence == death.attempt or (not death.has_started and row.fence == death.attempt + 1)
