"""Running dead jobs again, chosen by what the tables tell of their deaths.

The row of a dead job is moved, as `dueline dead retry` does; no second job is made, so whoever
repeats this, or goes on where it was cut off, doubles nothing. Each death is redriven once: a job
that has died again since is another death, which the tables tell of later.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from dueline.core.job import Job, JobId, State
from dueline.core.tuples import field
from dueline.jobs.queue import Queues

PAGE: Final = 500


class Wanted(NamedTuple):
    """Which deaths: each part that is not empty has to fit.

    error: stands in the error, or is its fingerprint as the table `poison` has it. since_us,
    until_us: when they died; `until_us` is no more.
    """

    queues: Sequence[str] = ()
    task: str = ""
    error: str = ""
    since_us: int = 0
    until_us: int = (1 << 63) - 1


class Death(NamedTuple):
    """The last death of a job that the tables tell of. error: its fingerprint.

    attempt: the claim that it died under. has_started: its handler was called, as it told.
    """

    job_id: str
    attempt: int
    has_started: bool
    queue: str
    task: str
    error: str


_kind_of = field(Death, "queue", "task", "error")


class Kind(NamedTuple):
    """Deaths of one kind. deaths: in the tables. dead: those whose jobs are still dead of it."""

    queue: str
    task: str
    error: str
    deaths: int
    dead: int


def kinds(queues: Queues, deaths: Sequence[Death]) -> list[Kind]:
    """Count deaths by kind, those of which most jobs are dead first."""
    recorded = Counter(map(_kind_of, deaths))
    dead = Counter(_kind_of(one) for page in _dead(queues, deaths) for one, _ in page)
    found = [
        Kind(queue, task, error, count, dead[queue, task, error])
        for (queue, task, error), count in recorded.items()
    ]
    return sorted(found, key=lambda one: (-one.dead, one))


def redrive(queues: Queues, deaths: Sequence[Death], say: Callable[[str], None]) -> int:
    """Run the jobs that are still dead again, page by page; tell how many will run."""
    done = 0
    for page in _dead(queues, deaths):
        done += queues.retry_all([row for _, row in page])
        say(f"redrive: {done:,} jobs")
    return done


def _dead(queues: Queues, deaths: Sequence[Death]) -> Iterator[list[tuple[Death, Job]]]:
    """Look up who is still dead of the death that is told of."""
    for start in range(0, len(deaths), PAGE):
        page = deaths[start : start + PAGE]
        rows = queues.engine.store.find([JobId(bytes.fromhex(one.job_id)) for one in page])
        pairs = zip(page, rows, strict=True)
        yield [(one, row) for one, row in pairs if row is not None and _died_so(one, row)]


def _died_so(death: Death, row: Job) -> bool:
    """Tell whether a row is that of a job which died so, and has not been claimed since.

    Who finds that a worker died too often claims the job once more before it lets it die.
    """
    if row.state != State.DEAD or row.outcome:
        return False
    return row.fence == death.attempt or (not death.has_started and row.fence == death.attempt + 1)
