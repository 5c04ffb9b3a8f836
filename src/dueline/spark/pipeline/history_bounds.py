"""Which jobs an audit judges.

The tables record the start of each queue's history when it is first copied, and it never changes.
Nothing is said about earlier jobs.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from dueline.core.ids import created_us
from dueline.core.job import JobId

_HEX: Final = 32
_TIMED: Final = "7"
"""The version digit of an id that contains its creation time."""

NO_END: Final = (1 << 63) - 1


class EnqueuePeriod(NamedTuple):
    """Which jobs an audit judges, by enqueue time."""

    since_us: int = 0
    until_us: int = NO_END


def is_inside(
    period: EnqueuePeriod,
    begins: Mapping[str, int],
    job_id: str,
    queue: str | None,
    enqueued: int | None,
) -> bool:
    """Return whether an audit judges a job: it is in the tables and in the requested period.

    Args:
        begins: Start of the history in the tables, by queue.
        queue: Queue in its rows; None for a job without rows.
        enqueued: Enqueue time in its rows; None for a job without rows.
    """
    begin_us = max(begins.values(), default=0) if queue is None else begins.get(queue, 0)
    if not begin_us and period == EnqueuePeriod():
        return True
    if enqueued is None and len(job_id) == _HEX and job_id[_HEX // 2 - 4] == _TIMED:
        enqueued = created_us(JobId(bytes.fromhex(job_id)))
    return enqueued is not None and max(begin_us, period.since_us) <= enqueued < period.until_us
