"""Portions: rows that `dueline move` takes together from one store to another.

A portion is taken in the source under a token of its own, far behind all due times. It is inserted
in the target with a record of that token, which names its rows; so a process that continues after
another one knows what was inserted. Then its rows are deleted in the source (rules X2 to X5).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from dueline.admin.move_records import of_partitions, put_again, put_new
from dueline.core.call_options import durable_place
from dueline.core.clock import DAY_US
from dueline.core.codec import encode
from dueline.core.engine import Engine
from dueline.core.errors import Conflict
from dueline.core.job import AWAY_US, UNCLAIMED_TOKEN, Job, JobId, State, Token, is_away
from dueline.core.lane import bucket_of, living_queue
from dueline.core.queue_settings import shard_of
from dueline.core.readable_records import value_at
from dueline.core.store import NO_VERSION, Commit, Drop, Group, Move, Put
from dueline.durable import removal, stopped
from dueline.jobs import (
    called_jobs,
    cancel_requests,
    chunk_records,
    decisions,
    dependencies,
    function_list,
    progress_records,
    results,
    unique_records,
)
from dueline.jobs.decisions import Completion, Decision
from dueline.jobs.function_list import inbox_of
from dueline.jobs.history_batch import ids_in
from dueline.jobs.parked_functions import wake
from dueline.jobs.unique import rule_of
from dueline.tasks import sections

PARTITION: Final = "moves"
KEEP_US: Final = 30 * DAY_US
"""How long a portion is remembered: a process that was suspended inserts nothing later."""


@dataclass(frozen=True, slots=True)
class Portion:
    """What a repeated insert needs to write the same rows (rule B3).

    Attributes:
      now_us: Of the target; due rows get this position.
      ids: The rows, in hexadecimal digits.
      shapes: Number of shards and width of the buckets of each queue.
    """

    now_us: int
    ids: str = ""
    shapes: tuple[tuple[str, int, int], ...] = ()

    def has(self, job: Job) -> bool:
        """Return whether a row is one of the portion."""
        return job.id.hex() in ids_in(self.ids)

    def row_of(self, taken: Job) -> Job:
        """Return the row to insert for one that was taken; a dead-letter job keeps its time."""
        shards, width_us = next(
            (shards, width_us)
            for queue, shards, width_us in self.shapes
            if queue == living_queue(taken.lane.queue)
        )
        at_us = taken.at_us - AWAY_US
        if taken.state != State.DEAD:
            at_us = max(at_us, self.now_us)
        lane = taken.lane._replace(
            shard=shard_of(taken.id, shards), bucket=bucket_of(at_us, width_us)
        )
        return taken._replace(
            lane=lane, pos_us=at_us, at_us=at_us, hop=taken.hop + 1, token=UNCLAIMED_TOKEN
        )


class Portions:
    """Takes rows from one store to another; several processes may do so, and end anywhere."""

    def __init__(self, source: Engine, target: Engine) -> None:
        self._source = source
        self._target = target
        self._called: set[JobId] = set()  # functions whose called jobs ended in the target before

    def move(self, rows: Sequence[Job]) -> int:
        """Move rows, except those that other processes change meanwhile; return how many."""
        if not rows:
            return 0
        token = self._source.ids.token()
        self._source.store.settle([_take(row, token) for row in rows])
        reread = self._source.store.find([row.id for row in rows])
        taken = [row for row in reread if row is not None and row.token == token]
        if not taken:
            return 0
        portion = self._portion(taken)
        self._prepare(taken)
        if not self._record(token, portion, [portion.row_of(row) for row in taken]):
            raise Conflict(
                "Another `dueline move` has taken over.", hint="Let one process move the store."
            )
        self._finish(portion, taken)
        return len(taken)

    def resume(self, token: Token, taken: Sequence[Job]) -> int:
        """Continue with rows that another process took; return how many were moved (rule X5)."""
        portion = self._stored(token)
        if portion is None:  # then that process inserts nothing any more
            sealed = Portion(self._target.time.latest_us())
            self._record(token, sealed, ())
            portion = self._stored(token) or sealed
        inserted = [row for row in taken if portion.has(row)]
        if inserted:
            self._complete(token, portion, inserted)
        self._finish(portion, inserted)
        return len(inserted) + self.move([row for row in taken if not portion.has(row)])

    def _portion(self, taken: Sequence[Job]) -> Portion:
        queues = sorted({living_queue(row.lane.queue) for row in taken})
        settings = [self._target.catalog.settings(queue) for queue in queues]
        return Portion(
            self._target.time.latest_us(),
            "".join(row.id.hex() for row in taken),
            tuple(
                (queue, setting.shards, setting.width_us)
                for queue, setting in zip(queues, settings, strict=True)
            ),
        )

    def _stored(self, token: Token) -> Portion | None:
        return value_at(self._target.store, PARTITION, token.hex(), Portion)[0]

    def _record(self, token: Token, portion: Portion, rows: Sequence[Job]) -> bool:
        """Store a portion with its rows, once; return False if its token has a record (rule X3)."""
        return decisions.decide(self._target.store, [self._decision(token, portion, rows)])[0]

    def _decision(self, token: Token, portion: Portion, rows: Sequence[Job]) -> Decision:
        put = Put(
            token.hex(), token, encode(portion), NO_VERSION, expires_us=portion.now_us + KEEP_US
        )
        return Decision(Commit(PARTITION, (put,)), Group(jobs=rows))

    def _complete(self, token: Token, portion: Portion, taken: Sequence[Job]) -> None:
        """Insert the rows of a stored portion, maybe again.

        Raises: Conflict: it is too late, and some rows are neither there nor known to have ended.
        """
        rows = [portion.row_of(row) for row in taken]
        store, age_us = self._target.store, self._target.time.latest_us() - portion.now_us
        decision = self._decision(token, portion, rows)
        if decisions.complete(store, decision, age_us=age_us) is not Completion.TOO_LATE:
            return
        ids = [row.id for row in rows]
        there = {row.id for row in store.find(ids) if row is not None}
        there |= set(results.read_many(store, ids))
        if lost := [row.id.hex() for row in rows if row.id not in there]:
            raise Conflict(
                f"{len(lost)} jobs were being moved more than a day ago, and may have run since, "
                f"the first of them {lost[0]}.",
                hint="Cancel them in the old store, or enqueue them anew, then continue.",
            )

    def _prepare(self, taken: Iterable[Job]) -> None:
        """Copy what the next claim of a job reads.

        These are its progress, a request to cancel it, and how the jobs ended that it waits for.
        """
        taken = list(taken)
        began = [row for row in taken if row.fence]
        source, target = self._source.store, self._target.store
        now_us = self._target.time.latest_us()
        until_us = now_us + progress_records.KEEP_US
        reports = [
            Commit(place, (Put(key, version, value, NO_VERSION, expires_us=until_us),))
            for place in (progress_records.place_of(row.id) for row in began)
            for key, version, value in source.read(place, after=None, limit=1)
        ]
        target.together([Group(commits=(report,)) for report in reports])
        for job_id in cancel_requests.asked(source, [row.id for row in began]):
            version = self._target.ids.token()
            cancel_requests.remember(target, job_id, now_us=now_us, version=version)
        marks = of_partitions(source, (sections.partition_of(row.id) for row in began))
        put_new(target, marks)  # those of sections that ended are kept longer than needed
        put_again(
            target, chain.from_iterable(chunk_records.copies(source, row.id) for row in began)
        )
        dependencies.copy_known(self._source, self._target, taken)
        self._copy_functions([row for row in taken if durable_place(row) is not None])

    def _copy_functions(self, rows: Iterable[Job]) -> None:
        """Copy what durable functions have recorded and received; nobody claims them now."""
        for row in rows:
            partitions = [inbox_of(row.id)]
            for generation in removal.generations_of(self._source.store, row.id):
                partitions += removal.partitions_of_log(self._source.store, row.id, generation)
            puts = of_partitions(self._source.store, partitions)
            if called_jobs.has_end(self._target.store, row):
                self._called.add(row.id)
            if (first := next(puts, None)) is not None:
                function_list.add(self._target, row)
                put_new(self._target.store, chain((first,), puts))

    def _finish(self, portion: Portion, taken: Sequence[Job]) -> None:
        """Give inserted rows their unique keys, delete them in the source, and wake workers."""
        if not taken:
            return
        rows = [portion.row_of(row) for row in taken]
        keys = [
            unique_records.take(row, rule, expect=row.id)
            for row in rows
            if row.opts and row.state != State.DEAD and (rule := rule_of(row)) is not None
        ]
        self._target.store.together([Group(commits=(key,)) for key in keys])
        stopped.list_moved(self._target, rows)
        self._target.announce(rows)
        for row in rows:
            if row.id in self._called:
                wake(self._target, row.id)
        dropped = self._source.store.settle([Drop(row) for row in taken])  # rule X4
        if not all(dropped):
            left = self._source.store.find([row.id for row in taken])
            if any(row is not None for row in left):
                raise Conflict("Rows changed while they were moved.", hint="Run it again.")


def _take(row: Job, token: Token) -> Move:
    """Return the move that takes a row under a portion's token; its state and history stay."""
    at_us = row.at_us if is_away(row) else row.at_us + AWAY_US
    return Move(row, at_us, token, AWAY_US, row.errors, row.crashes, row.alone, state=row.state,
                error=row.error)  # fmt: skip
