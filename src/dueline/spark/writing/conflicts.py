"""What becomes of rows whose jobs are alive by another write."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from dueline.core.call_options import is_step
from dueline.core.engine import Engine
from dueline.core.errors import Conflict
from dueline.core.job import Job, JobId, State
from dueline.core.lane import living_queue
from dueline.core.store import Move
from dueline.jobs.moves import Change, changed
from dueline.spark.writing.rows_to_jobs import Birth

EXISTING, REJECT, EARLIEST, REPLACE = "existing", "reject", "earliest", "replace"

ON_CONFLICT: Final = (EXISTING, REJECT, EARLIEST, REPLACE)
"""It is left as it is (the default), an error, due at the earlier of both times, or due when the
row says and of the row's priority."""


ON_OTHER_QUEUE: Final = (REJECT, EXISTING)
"""What becomes of rows whose jobs are alive in another queue: an error (the default), or the jobs
are left as they are, and counted."""


def elsewhere(living: Iterable[Job], births: Mapping[JobId, Birth]) -> dict[JobId, str]:
    """Return the jobs that are alive in another queue than their rows name, with that queue."""
    queues = {row.id: living_queue(row.lane.queue) for row in living}
    return {one: queue for one, queue in queues.items() if queue != births[one].queue}


def reject_elsewhere(found: Mapping[JobId, str]) -> None:
    """Refuse rows that have the ids of jobs in another queue, if there are any.

    Raises: Conflict.
    """
    if found:
        one = min(found)
        raise Conflict(
            f"Rows of this write have the ids of jobs in another queue: {len(found)}, such as"
            f" {one.hex()} in {found[one]}.",
            hint="Name jobs by dedupe_key or idColumns, which keep queues apart, or make the queue"
            " part of job_id; onOtherQueue=existing leaves those jobs as they are.",
        )


def reject(living: Collection[JobId]) -> None:
    """Say that jobs are alive by another write, if any are.

    Raises: Conflict.
    """
    if living:
        raise Conflict(
            f"Jobs of this write are alive by another: {len(living)}, such as {min(living).hex()}.",
            hint="Say onConflict=existing to leave them as they are, and put the others.",
        )


def moves(
    living: Iterable[Job],
    births: Mapping[JobId, Birth],
    on_conflict: str,
    *,
    engine: Engine,
    now_us: int,
) -> list[Move]:
    """Make the verdicts that change jobs which are alive, the same for every repeat.

    What anyone has claimed already is left as it is, and so are the dead and the steps of
    workflows: their times are no longer those of a call.
    """
    if on_conflict not in (EARLIEST, REPLACE):
        return []
    found = []
    for row in living:
        if row.fence or row.state != State.WAITING or row.outcome or is_step(row):
            continue
        birth = births[row.id]
        if living_queue(row.lane.queue) != birth.queue:
            continue
        at_us = max(now_us if birth.due_us is None else birth.due_us, now_us)
        if on_conflict == EARLIEST and at_us >= row.at_us:
            continue
        change = Change(at_us, birth.priority if on_conflict == REPLACE else None)
        width_us = engine.catalog.settings(row.lane.queue).width_us
        found.append(changed(row, change, token=engine.ids.token(), width_us=width_us))
    return found
