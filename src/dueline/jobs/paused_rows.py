"""Rows of jobs that are paused one by one, see `job_pauses`."""

from dueline.core.call_options import read_options
from dueline.core.engine import Engine
from dueline.core.job import PAUSED_US, Job
from dueline.core.lane import bucket_of
from dueline.core.store import Move
from dueline.core.wakeup import place_of


def resumed(engine: Engine, row: Job) -> bool:
    """Return a row to its place; return whether it was still paused as it was read."""
    at_us, now_us = row.at_us - PAUSED_US, engine.time.latest_us()
    due_us = now_us if at_us <= now_us else None  # a start is not late because of the pause
    return is_moved(engine, row, min(at_us, now_us) if _may_be_released(row, at_us) else at_us,
                     due_us=due_us)  # fmt: skip


def _may_be_released(row: Job, at_us: int) -> bool:
    """Return whether a row waited for others at a place, so that it may have missed its release."""
    options = read_options(row.opts)
    places = options.step, options.durable, options.order
    return options.awaits is not None or any(
        place is not None and 0 < place.parked_us == at_us for place in places
    )


def is_moved(engine: Engine, row: Job, at_us: int, *, due_us: int | None = None) -> bool:
    """Move a row; return whether it was still as it was read."""
    bucket = bucket_of(at_us, engine.catalog.expect_here(row.lane.queue).width_us)
    move = Move(row, at_us, engine.ids.token(), bucket, row.errors, row.crashes, row.alone,
                error=row.error, due_us=due_us)  # fmt: skip
    is_settled = engine.recording_store.settle([move])[0]
    if is_settled:
        engine.wake([place_of(move)])
    return is_settled
