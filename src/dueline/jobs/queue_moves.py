"""Moves of waiting jobs to another queue.

A move is one outcome under the token that was read, to a lane of the other queue (rules K1 to K4).
The id of the job stays, and so does all that is found by it: its result, waiters and records. A
unique key goes along (rule O4); what belongs to the old queue keeps a job there.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from dueline.core.call_options import durable_place, order_of, read_options
from dueline.core.errors import BadInput, Conflict, Duplicate, QuotaExceeded, StoreCorrupt
from dueline.core.job import Job, JobId, State, place_us
from dueline.core.job_status import status_of
from dueline.core.lane import Lane, bucket_of, tenant_of
from dueline.core.pagination import parts_of
from dueline.core.queue_settings import check_queue_name, shard_of
from dueline.core.store import Group, Move, Row, Store
from dueline.core.validation import check_delivery
from dueline.core.wakeup import place_of
from dueline.jobs.bulk import PAGE, BulkResult
from dueline.jobs.history import MOVED_FROM, row_of_note
from dueline.jobs.history_recorder import noting
from dueline.jobs.moves import conflict_error, was_called
from dueline.jobs.paused_tasks import place_before
from dueline.jobs.queue import Queues
from dueline.jobs.unique import rule_of

_ROUNDS_MAX: Final = 5

REASONS: Final[Mapping[str, str]] = {
    "running": "a worker has claimed it",
    "ended": "it is dead or has ended",
    "expired": "it has expired",
    "elsewhere": "it is not in the queue to move from",
    "there": "it is in that queue already",
    "order key": "its order key belongs to its queue",
    "unique key": "another job of the new queue holds its unique key",
    "stopped": "it is a stopped durable function; reset it first",
    "delivery": "the new queue delivers at most once, and it has begun or is a durable function",
    "unreadable": "its options cannot be read",
    "quota": "the new queue has no room",
    "changed": "another process changed it at the same time",
}
"""Why jobs are not moved."""


class QueueMoves:
    """Moves jobs to one queue.

    Args:
        queues: The queues of the store, with the actor.
        to: The queue to move to.
        source: The queue to move from; None for any.

    Attributes:
        to: The queue to move to.
        moved: The number of jobs that were moved, or that would be.
        left: The numbers of jobs that were not moved, by the reason, see `REASONS`.

    Raises:
        BadInput: A name is invalid, or both are the same.
        NotFound: A queue does not exist.
    """

    def __init__(self, queues: Queues, to: str, source: str | None = None) -> None:
        self._queues = queues
        self._engine = queues.engine
        self.to = check_queue_name(to)
        self._source = source
        for name in (to,) if source is None else (source, to):
            self._engine.catalog.chosen(name)
        if source == to:
            raise BadInput(f"The jobs are in the queue {to} already.", hint="Choose another queue.")
        self.moved = 0
        self.left: Counter[str] = Counter()

    def move_all(self, rows: Iterable[Job]) -> Iterator[BulkResult]:
        """Move jobs, page by page; those that cannot be moved are counted in `left`."""
        for page in parts_of(rows, PAGE):
            done = self._count(self._move_page(page))
            yield BulkResult(done=done, left=len(page) - done)

    def preview(self, rows: Iterable[Job]) -> None:
        """Count the jobs that would be moved, and those that would not.

        Quotas of the new queue are not asked.
        """
        for page in parts_of(rows, PAGE):
            self._count([self._reason(row) or self._reason_of_key(row) for row in page])

    def _count(self, reasons: Sequence[str]) -> int:
        """Count jobs by the reason why they are not moved; return how many are."""
        done = reasons.count("")
        self.moved += done
        self.left.update(filter(None, reasons))
        return done

    def move(self, job_id: JobId) -> None:
        """Move one job.

        Raises:
            NotFound: There is no such job.
            Conflict: It cannot be moved; nothing was changed.
            QuotaExceeded: The new queue has no room; nothing was changed.
        """
        for _ in range(_ROUNDS_MAX):
            known = self._queues.find(job_id)
            row = known.row
            if row is None or known.status in ("dead", "running", "expired"):
                raise conflict_error(job_id, "moved", known.status)
            reason = self._reason(row)
            if not reason:
                self._admit(tenant_of(row.lane), 1)
                reason = self._moved([row])[0]
            if not reason:
                return
            if reason != "changed":
                raise Conflict(
                    f"The job {job_id.hex()} cannot be moved to the queue {self.to}: "
                    f"{REASONS[reason]}.",
                    hint="See `dueline jobs show`.",
                )
        raise conflict_error(job_id, "moved", "changing")

    def _move_page(self, page: Sequence[Job]) -> list[str]:
        """Move jobs; return for each the reason why it was not moved, empty if it was."""
        reasons = {row.id: self._reason(row) for row in page}
        fitting = [row for row in page if not reasons[row.id]]
        for tenant in {tenant_of(row.lane) for row in fitting}:
            rest = [row for row in fitting if tenant_of(row.lane) == tenant]
            for part in self._with_room(tenant, rest):
                reasons |= dict(zip((row.id for row in part), self._moved(part), strict=True))
                rest = rest[len(part) :]
            reasons |= dict.fromkeys((row.id for row in rest), "quota")
        return [reasons[row.id] for row in page]

    def _with_room(self, tenant: str, rows: Sequence[Job]) -> Iterator[Sequence[Job]]:
        """Take jobs from the quotas of the new queue; yield those to move before the next."""
        with suppress(QuotaExceeded):
            self._admit(tenant, len(rows))
            yield rows
            return
        with suppress(QuotaExceeded):
            for row in rows:
                self._admit(tenant, 1)
                yield [row]

    def _reason(self, row: Job) -> str:
        """Return why a job cannot be moved, as far as its row says; empty if it can."""
        status = status_of(row, self._engine.time.latest_us())
        if row.outcome or row.state == State.DEAD:
            return "ended"
        if status == "running" or row.is_claimed():
            return "running"
        if status == "expired":
            return "expired"
        if row.lane.queue == self.to:
            return "there"
        if self._source not in (None, row.lane.queue):
            return "elsewhere"
        return self._reason_of_options(row)

    def _reason_of_options(self, row: Job) -> str:
        settings = self._engine.catalog.expect_here(self.to)
        try:
            check_delivery(read_options(row.opts), settings, row.task, self.to)
        except StoreCorrupt:
            return "unreadable"
        except BadInput:
            return "delivery"
        is_once = settings.is_once or self._engine.catalog.settings(row.lane.queue).is_once
        if is_once and was_called(row):
            return "delivery"
        if order_of(row) is not None:
            return "order key"
        stop = place.stop if (place := durable_place(row)) is not None else None
        return "stopped" if stop is not None and stop.at_us == place_us(row) else ""

    def _reason_of_key(self, row: Job) -> str:
        is_held = rule_of(row) is not None and self._queues.unique.is_held_in(row, self.to)
        return "unique key" if is_held else ""

    def _admit(self, tenant: str, count: int) -> None:
        if self._engine.catalog.expect_here(self.to).quotas:
            self._queues.admission.admit(self.to, tenant, count)

    def _moved(self, rows: Sequence[Job]) -> list[str]:
        """Move jobs that can be moved; return for each why it was not, empty if it was."""
        moves = [self._move_of(row) for row in rows]
        reasons = self._settle([move for move in moves if rule_of(move.job) is None])
        for move in moves:
            if move.job.id not in reasons:
                reasons[move.job.id] = self._settle_with_key(move)
        self._engine.wake(map(place_of, moves))
        self._engine.catalog.used(move.to for move in moves if move.to is not None)
        return [reasons[row.id] for row in rows]

    def _settle(self, moves: Sequence[Move]) -> dict[JobId, str]:
        """Move jobs without unique keys; return why each was not moved, empty if it was."""
        reasons: dict[JobId, str] = {}
        for source in {move.job.lane.queue for move in moves}:
            leaving = [move for move in moves if move.job.lane.queue == source]
            groups = [Group([move], rows=self._noted(move.job)) for move in leaving]
            held = self._noting(source).together(groups)
            reasons |= {
                move.job.id: "" if is_moved else "changed"
                for move, is_moved in zip(leaving, held, strict=True)
            }
        return reasons

    def _settle_with_key(self, move: Move) -> str:
        row = move.job
        carried = Group([move], rows=self._noted(row))
        try:
            is_moved = self._queues.unique.carry(move, carried, self._noting(row.lane.queue))
        except Duplicate:
            return "unique key"
        return "" if is_moved else "changed"

    def _move_of(self, row: Job) -> Move:
        """Return the verdict that moves a job: its time, priority, tenant and counts stay.

        A job that was deferred for a paused task of its old queue returns to its place.
        """
        settings = self._engine.catalog.expect_here(self.to)
        deferred_us = place_before(row)
        at_us = row.at_us if deferred_us is None else deferred_us
        bucket = bucket_of(place_us(row._replace(at_us=at_us)), settings.width_us)
        lane = Lane(self.to, shard_of(row.id, settings.shards), bucket, row.lane.priority,
                    row.lane.tenant)  # fmt: skip
        return Move(row, at_us, self._engine.ids.token(), bucket_of(at_us, settings.width_us),
                    row.errors, row.crashes, row.alone, error=row.error, to=lane)  # fmt: skip

    def _noting(self, source: str) -> Store:
        """Return the store that records moves from a queue in the history of the new one."""
        text = self._queues.did(f"{MOVED_FROM}{source}")
        return noting(self._engine.recording_store, text) if text else self._engine.recording_store

    def _noted(self, row: Job) -> Sequence[Row]:
        """Return the event of the old queue's history, if it is known who moves the job."""
        text = self._queues.did(f"moved to the queue {self.to}")
        if not text or self._engine.catalog.settings(row.lane.queue).history == "off":
            return ()
        return (row_of_note(row, self._engine.time.latest_us(), text),)
