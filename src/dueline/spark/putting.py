"""Putting jobs of data, each once."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from dueline.job import Job, JobId
from dueline.queue import Queues
from dueline.spark.births import Birth, in_order, jobs_of
from dueline.spark.conflicts import EXISTING, REJECT, moves
from dueline.spark.ledger import Dues, Ledger
from dueline.store import Move

CHUNK: Final = 20_000
"""Rows that are put at once, where nobody says otherwise."""


class Written(NamedTuple):
    """What a write came to. rows: of the data. added: jobs that were not there before."""

    rows: int = 0
    added: int = 0

    def plus(self, other: "Written") -> "Written":
        """Add what another part came to."""
        return Written(self.rows + other.rows, self.added + other.added)


def put_all(
    queues: Queues,
    chunks: Iterable[Sequence[Birth]],
    write: str,
    partition: int,
    *,
    keep_us: int,
    on_conflict: str = EXISTING,
) -> Written:
    """Put chunks of a partition of a write; what this write has put before is not put again.

    Args: keep_us: how long that is known. on_conflict: see `ON_CONFLICT`.
    """
    expires_us = queues.time.earliest_us() + keep_us
    token = queues.ids.token
    ledger = Ledger(
        queues.told,
        write,
        partition,
        token=token,
        expires_us=expires_us,
        rejects=on_conflict == REJECT,
    )
    done = Written()
    for some in chunks:
        by_id = {birth.id: birth for birth in in_order(some)}
        made: list[Job] = []
        moved: list[Move] = []

        def make(ids: Sequence[JobId], born_us: int, dues: Dues) -> Sequence[Job]:
            births = [by_id[one] for one in ids]  # noqa: B023  (called at once)
            if dues:
                births = [one._replace(due_us=dues[one.id]) for one in births]
            made[:] = jobs_of(births, now_us=born_us, settings=queues.catalog.settings)  # noqa: B023
            return made  # noqa: B023

        def change(living: Sequence[Job], now_us: int) -> Sequence[Move]:
            moved[:] = moves(living, by_id, on_conflict, queues=queues, now_us=now_us)  # noqa: B023
            return moved  # noqa: B023

        added = ledger.put(list(by_id), make, change, now_us=queues.time.earliest_us())
        done = done.plus(Written(len(some), added))
        queues.landed(made)
        queues.wake((move.job.lane.queue, move.at_us) for move in moved)
    ledger.close()
    return done
