"""Dead-letter jobs, grouped by task and error."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter

from dueline.admin.filters import written_filter
from dueline.admin.search import JobFilter, lanes_like
from dueline.core.attempt import read_epitaph
from dueline.core.engine import Engine
from dueline.core.job import Job
from dueline.core.pagination import jobs_in_lanes

READ_MAX = 10_000
"""Maximum number of dead-letter jobs that are read."""

ALL_DEAD = JobFilter("dead")
_VARIABLE = re.compile(r"0x[0-9a-fA-F]+|[0-9a-f]{8,}(?:-[0-9a-f]+)*|\d+")
_ERROR_CHARACTERS = 200
_at_of = attrgetter("at_us")


@dataclass(frozen=True, slots=True)
class DeadGroup:
    """Dead-letter jobs of one task with the same error, apart from numbers.

    Attributes:
      error: The first line; numbers are written as N.
      filter: The filter that finds the jobs of the group.
      first_us: When the first of them died.
      last_us: When the last of them died.
      example: Id of the last of them.
    """

    task: str
    error: str
    filter: str
    count: int
    first_us: int
    last_us: int
    example: str


@dataclass(frozen=True, slots=True)
class DeadGroups:
    """All groups, the largest first. is_capped: there are more jobs than were read."""

    groups: Sequence[DeadGroup]
    is_capped: bool


def dead_groups(engine: Engine, like: JobFilter = ALL_DEAD, *, since_us: int = 0) -> DeadGroups:
    """Group the dead-letter jobs.

    Args:
        engine: The engine.
        like: Which jobs; by default all.
        since_us: Only those that died from this time on.

    Raises:
        NotFound: The queue does not exist.
    """
    by_error: dict[tuple[str, str], list[Job]] = defaultdict(list)
    read, now_us = 0, engine.time.latest_us()
    for row in islice(jobs_in_lanes(engine.store, lanes_like(engine, like)), READ_MAX):
        read += 1
        if row.at_us >= since_us and like.fits(row, now_us):
            by_error[row.task, _VARIABLE.sub("N", _line(row))].append(row)
    groups = sorted(
        (_group(*key, jobs) for key, jobs in by_error.items()),
        key=lambda group: (-group.count, group.task, group.error),
    )
    return DeadGroups(groups, is_capped=read == READ_MAX)


def _line(row: Job) -> str:
    return read_epitaph(row.error)[0].strip().partition("\n")[0][:_ERROR_CHARACTERS]


def _group(task: str, error: str, jobs: Sequence[Job]) -> DeadGroup:
    fixed = _VARIABLE.split(_line(jobs[0]), maxsplit=1)[0].strip().partition('"')[0].strip()
    words = written_filter(state="dead", task=task, error=fixed)
    last = max(reversed(jobs), key=_at_of)
    first_us = min(map(_at_of, jobs))
    return DeadGroup(task, error, words, len(jobs), first_us, last.at_us, last.id.hex())
