"""What handlers logged, kept with the attempts of a job.

One record for each attempt, in a partition of the job. They expire with the queue's history, and
of each job only the last ATTEMPTS_MAX are kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dueline.core.codec import encode
from dueline.core.engine import Engine
from dueline.core.job import Job, JobId
from dueline.core.lane import living_queue
from dueline.core.readable_records import readable
from dueline.core.store import Commit, Delete, Group, Put, Records

KIND: Final = "attempt-lines"
"""The kind of the partitions."""

ATTEMPTS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class AttemptLines:
    """What the handler logged in one attempt: the last 16 KiB.

    Attributes:
      fence: Number of the claim, as in the history.
      ended_us: When the attempt ended, in microseconds UTC.
      text: The lines: time, level, logger and message. Control characters are escaped.
    """

    fence: int
    ended_us: int
    text: str


def place_of(job_id: JobId) -> str:
    """Return the partition of a job's lines."""
    return f"{KIND}/{job_id.hex()}"


def written(engine: Engine, job: Job, ended_us: int, text: str) -> Group:
    """Return the write of an attempt's lines; the same for every repeat."""
    keep_us = engine.catalog.settings(living_queue(job.lane.queue)).history_us
    value = encode(AttemptLines(job.fence, ended_us, text))
    put = Put(_key(job.fence), engine.ids.token(), value, expires_us=ended_us + keep_us)
    old = Delete(_key(job.fence - ATTEMPTS_MAX))
    writes = (put, old) if job.fence > ATTEMPTS_MAX else (put,)
    return Group(commits=(Commit(place_of(job.id), writes),))


def read(records: Records, job_id: JobId) -> Sequence[AttemptLines]:
    """Return the lines of a job's attempts, the first first."""
    return [lines for _, lines in readable(records, place_of(job_id), AttemptLines)]


def _key(fence: int) -> str:
    return f"{fence:010d}"
