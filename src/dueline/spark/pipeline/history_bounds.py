"""From when on, and until when, tables hold a history.

Written down in the manifest of bronze when tables are begun, and the same ever after: what was
before is not in them, so nothing is said about it. A queue whose history had let go of rows by
then begins later than the tables do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from dueline.core.clock import to_datetime
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, Conflict
from dueline.core.ids import born_us
from dueline.core.job import JobId
from dueline.jobs.history import HISTORY_SUFFIX
from dueline.log import trimming
from dueline.spark.pipeline.table_store import BRONZE, Folder, Manifest

_HEX: Final = 32
_TIMED: Final = "7"
"""The digit of an id that says its version, where an id tells of its time."""

NO_END: Final = (1 << 63) - 1


class Births(NamedTuple):
    """Which jobs an audit is asked about, by when they were enqueued."""

    since_us: int = 0
    until_us: int = NO_END


def bound(
    folder: Folder, engine: Engine, names: Sequence[str], since_us: int | None, until_us: int | None
) -> Manifest:
    """Begin tables with a period, or go on in theirs; tell the manifest of bronze.

    Args: names: of the queues that are to be copied.

    Raises: Conflict: the tables hold another period. BadInput: it begins in the future.
    """
    before = folder.manifest(BRONZE)
    has_begun = before.done >= 0 or bool(before.begins)
    asked = before.since_us if since_us is None else since_us, until_us or before.until_us
    if has_begun and asked != (before.since_us, before.until_us):
        raise Conflict(
            f"The tables in {folder.root} hold {_words(before)}.",
            hint="Leave out --since and --until to go on with it, or give another folder.",
        )
    if asked[0] > engine.time.latest_us():
        raise BadInput("--since lies in the future.", hint="Begin the tables then.")
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
    births: Births, begins: Mapping[str, int], job_id: str, queue: str | None, born: int | None
) -> bool:
    """Tell whether a job is one that an audit is asked about, and can say something about.

    Args: queue, born: as its rows tell; None of a job that has none.
    """
    begin_us = max(begins.values(), default=0) if queue is None else begins.get(queue, 0)
    if not begin_us and births == Births():
        return True
    if born is None and len(job_id) == _HEX and job_id[_HEX // 2 - 4] == _TIMED:
        born = born_us(JobId(bytes.fromhex(job_id)))
    return born is not None and max(begin_us, births.since_us) <= born < births.until_us


def _words(manifest: Manifest) -> str:
    since = to_datetime(manifest.since_us).isoformat() if manifest.since_us else "their beginning"
    until = to_datetime(manifest.until_us).isoformat() if manifest.until_us else "now"
    return f"the history from {since} to {until}"
