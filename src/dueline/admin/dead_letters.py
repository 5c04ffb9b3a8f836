"""Dead-letter jobs, grouped by task and error."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from dueline.admin.filters import written_filter
from dueline.core.attempt import read_epitaph
from dueline.core.engine import Engine
from dueline.core.lane import dead_queue

READ_MAX = 10_000
"""Maximum number of dead-letter jobs that are read."""

_VARIABLE = re.compile(r"0x[0-9a-fA-F]+|[0-9a-f]{8,}(?:-[0-9a-f]+)*|\d+")
_ERROR_CHARACTERS = 200


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


def dead_groups(engine: Engine, *, most: int = READ_MAX) -> DeadGroups:
    """Group the dead-letter jobs of all queues."""
    found: dict[tuple[str, str], DeadGroup] = {}
    read = 0
    rows = (row for name in engine.catalog.names() for row in engine.jobs_of(dead_queue(name)))
    for row in islice(rows, most):
        read += 1
        if row.outcome:
            continue
        line = read_epitaph(row.error)[0].strip().partition("\n")[0][:_ERROR_CHARACTERS]
        key = row.task, _VARIABLE.sub("N", line)
        fixed = _VARIABLE.split(line, maxsplit=1)[0].strip().partition('"')[0].strip()
        words = written_filter(state="dead", task=row.task, error=fixed)
        old = found.get(key) or DeadGroup(*key, words, 0, row.at_us, 0, "")
        is_last = row.at_us >= old.last_us
        found[key] = DeadGroup(
            *key,
            old.filter,
            old.count + 1,
            min(old.first_us, row.at_us),
            max(old.last_us, row.at_us),
            row.id.hex() if is_last else old.example,
        )
    groups = sorted(found.values(), key=lambda one: (-one.count, one.task, one.error))
    return DeadGroups(groups, is_capped=read == most)
