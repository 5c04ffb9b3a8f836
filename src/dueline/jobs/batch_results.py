"""Results of the jobs of a batch, read in ranges of positions."""

from collections.abc import Mapping, Sequence
from typing import Final

from dueline.core.attempt import Outcome, read_epitaph
from dueline.core.batch_ids import BatchId, ids_at
from dueline.core.engine import Engine
from dueline.core.job import State
from dueline.core.pagination import parts_of
from dueline.jobs import results
from dueline.jobs.completion import stored

RANGE: Final = 4096
"""Number of positions whose results are in memory at once."""

_POSITION_DIGITS: Final = 26
"""Number of digits before those of the position."""

_NEAR: Final = 8
"""A range is read as a whole if at least one of this number of positions is wanted."""

_FOUND_AT_ONCE: Final = 500


def outcomes_at(engine: Engine, batch: BatchId, positions: Sequence[int]) -> dict[int, Outcome]:
    """Return how jobs ended, by position; those whose outcome is not kept are omitted.

    positions: growing; a range of up to RANGE is read in a few pages.
    """
    outcomes: dict[int, Outcome] = {}
    if positions and len(positions) * _NEAR > positions[-1] - positions[0]:
        first, last = ids_at(batch, (positions[0], positions[-1]))
        for record in results.shared_between(engine.store, first, last):
            for digits, outcome in results.outcomes_in(record):
                outcomes[int(digits[_POSITION_DIGITS:], 16)] = outcome
    missing = [position for position in positions if position not in outcomes]
    if missing:
        own = results.read_many(engine.store, ids_at(batch, missing))
        outcomes |= {int.from_bytes(job_id[-3:]): outcome for job_id, outcome in own.items()}
        missing = [position for position in missing if position not in outcomes]
    if missing:
        outcomes |= _of_rows(engine, batch, missing)
    return outcomes


def _of_rows(engine: Engine, batch: BatchId, positions: Sequence[int]) -> Mapping[int, Outcome]:
    """Return the outcomes in rows: of dead jobs, and of those whose results are being written."""
    outcomes: dict[int, Outcome] = {}
    for part in parts_of(positions, _FOUND_AT_ONCE):
        for position, row in zip(part, engine.store.find(ids_at(batch, part)), strict=True):
            if row is not None and row.outcome:
                outcomes[position] = stored(row).finish.outcome
            elif row is not None and row.state == State.DEAD:
                error, traceback = read_epitaph(row.error)
                outcomes[position] = Outcome("dead", row.at_us, error=error, traceback=traceback)
    return outcomes
