"""The period of history that tables hold.

The manifest of bronze records it when the tables are started, and it never changes. Nothing is said
about earlier jobs. A queue whose history was trimmed before then begins later than the tables.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from dueline.core.clock import to_datetime
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, Conflict
from dueline.core.ids import created_us
from dueline.core.job import JobId
from dueline.jobs.history import HISTORY_SUFFIX
from dueline.log import trimming
from dueline.spark.pipeline.table_store import BRONZE, Folder, Manifest

_HEX: Final = 32
_TIMED: Final = "7"
"""The version digit of an id that contains its creation time."""

NO_END: Final = (1 << 63) - 1


class EnqueuePeriod(NamedTuple):
    """Which jobs an audit judges, by enqueue time."""

    since_us: int = 0
    until_us: int = NO_END


def bound(
    folder: Folder, engine: Engine, names: Sequence[str], since_us: int | None, until_us: int | None
) -> Manifest:
    """Start tables with a period, or check that it is theirs; return the manifest of bronze.

    Args:
        names: Queues to copy.
        since_us: Start of the period; None for the beginning, or that of the tables.
        until_us: End of the period; None for no end, or that of the tables.

    Raises:
        Conflict: The tables hold another period.
        BadInput: The period starts in the future.
    """
    before = folder.manifest(BRONZE)
    has_begun = before.done >= 0 or bool(before.begins)
    asked = before.since_us if since_us is None else since_us, until_us or before.until_us
    if has_begun and asked != (before.since_us, before.until_us):
        raise Conflict(
            f"The tables in {folder.root} hold {_words(before)}.",
            hint="Omit --since and --until to continue it, or use another folder.",
        )
    if asked[0] > engine.time.latest_us():
        raise BadInput("--since is in the future.", hint="Start the tables at that time.")
    begins = dict(before.begins)
    for name in names:
        if name not in begins:
            places = trimming.places(engine.store, name + HISTORY_SUFFIX).values()
            begins[name] = max(asked[0], max((at_us + 1 for at_us, _ in places), default=0))
    after = replace(before, since_us=asked[0], until_us=asked[1], begins=begins)
    if after != before:
        folder.publish(BRONZE, after)
    return after


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


def _words(manifest: Manifest) -> str:
    since = to_datetime(manifest.since_us).isoformat() if manifest.since_us else "its beginning"
    until = to_datetime(manifest.until_us).isoformat() if manifest.until_us else "now"
    return f"the history from {since} to {until}"
