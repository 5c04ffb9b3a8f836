"""Putting jobs of data, each once."""

from collections.abc import Iterable, Mapping, Sequence
from operator import add
from typing import Final, NamedTuple

from dueline.core.engine import Engine
from dueline.core.job import Job, JobId
from dueline.core.store import Move
from dueline.spark.writing.conflicts import EXISTING, REJECT, elsewhere, moves, reject_elsewhere
from dueline.spark.writing.rows_to_jobs import Birth, in_order, jobs_of
from dueline.spark.writing.write_log import Dues, Ledger

CHUNK: Final = 20_000
"""Rows that are put at once, where nobody says otherwise."""


class Written(NamedTuple):
    """What a write came to.

    rows: of the data. added: jobs that were not there before. elsewhere: rows that were left out,
    since a job with their id was in another queue.
    """

    rows: int = 0
    added: int = 0
    elsewhere: int = 0

    def plus(self, other: "Written") -> "Written":
        """Add what another part came to."""
        return Written(*map(add, self, other))


def split(some: Iterable[Birth], by_id: Mapping[JobId, Birth]) -> dict[JobId, str]:
    """Return the ids that rows of one chunk give to jobs of several queues, each with one."""
    return {one.id: one.queue for one in some if one.queue != by_id[one.id].queue}


def rows_elsewhere(
    some: Iterable[Birth], by_id: Mapping[JobId, Birth], living: Mapping[JobId, str]
) -> int:
    """Count the rows of a chunk that were left out since their job is in another queue.

    Args: by_id: the rows that jobs are made of. living: the jobs that are alive in another queue
    than these say, each with that queue.
    """
    return sum(one.queue != living.get(one.id, by_id[one.id].queue) for one in some)


def put_all(
    engine: Engine,
    chunks: Iterable[Sequence[Birth]],
    write: str,
    partition: int,
    *,
    keep_us: int,
    on_conflict: str = EXISTING,
    on_other_queue: str = REJECT,
) -> Written:
    """Put chunks of a partition of a write; what this write has put before is not put again.

    Args:
      keep_us: how long that is known.
      on_conflict, on_other_queue: see `ON_CONFLICT` and `ON_OTHER_QUEUE`.

    Raises:
      Conflict: jobs are alive by another write, or in another queue, and that is to be an error;
        of their chunk nothing was put.
    """
    expires_us = engine.time.earliest_us() + keep_us
    token = engine.ids.token
    ledger = Ledger(
        engine.recording_store,
        write,
        partition,
        token=token,
        expires_us=expires_us,
        rejects=on_conflict == REJECT,
    )
    done = Written()
    for some in chunks:
        by_id = {birth.id: birth for birth in in_order(some)}
        if on_other_queue == REJECT:
            reject_elsewhere(split(some, by_id))
        found: dict[JobId, str] = {}
        made: list[Job] = []
        moved: list[Move] = []

        def make(ids: Sequence[JobId], born_us: int, dues: Dues) -> Sequence[Job]:
            births = [by_id[one] for one in ids]  # noqa: B023  (called at once)
            if dues:
                births = [one._replace(due_us=dues[one.id]) for one in births]
            made[:] = jobs_of(births, now_us=born_us, settings=engine.catalog.settings)  # noqa: B023
            return made  # noqa: B023

        def change(living: Sequence[Job], now_us: int) -> Sequence[Move]:
            moved[:] = moves(living, by_id, on_conflict, engine=engine, now_us=now_us)  # noqa: B023
            return moved  # noqa: B023

        def check(living: Sequence[Job]) -> None:
            found.update(elsewhere(living, by_id))  # noqa: B023
            if on_other_queue == REJECT:
                reject_elsewhere(found)  # noqa: B023

        added = ledger.put(list(by_id), make, change, check, now_us=engine.time.earliest_us())
        done = done.plus(Written(len(some), added, rows_elsewhere(some, by_id, found)))
        engine.announce(made)
        engine.wake((move.job.lane.queue, move.at_us) for move in moved)
    ledger.close()
    return done
