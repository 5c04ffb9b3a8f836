"""Outcomes of jobs on Cassandra.

The outcomes of a lane are one conditional batch, applied all or nothing. The answer to a rejected
batch shows which outcomes are stale; the rest is sent again. An outcome that makes a job due
earlier lists the lane first and checks it afterwards, as an insert does. Only the row shows
whether it does, so other outcomes are sent on the condition that they do not. A request whose
answer was lost counts as soon as the row shows it (rule U5).
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dueline.core.errors import DuelineError, StoreUnavailable, Unknown
from dueline.core.job import Job, Token
from dueline.core.lane import Lane
from dueline.core.readback import WriteStatus, status_of_write
from dueline.core.store import Drop, Extend, Move, Verdict
from dueline.stores.cassandra import statements as rows
from dueline.stores.cassandra.answers import Answer
from dueline.stores.cassandra.session import Call, CassandraSession
from dueline.stores.cassandra.statements import BATCH_BYTES_MAX, BATCH_ROWS_MAX, Found
from dueline.stores.cursor_cache import CursorCache, Key, RowVersion, key_of
from dueline.stores.lane_index import LaneIndex
from dueline.stores.row_updates import is_carried, moved

TRIES_MAX: Final = 6
"""Maximum number of times that an outcome is sent."""


class _Item:
    """An outcome to apply. lost: The error of an earlier request whose answer was lost."""

    def __init__(self, place: int, verdict: Verdict) -> None:
        self.place = place
        self.verdict = verdict
        self.key = key_of(verdict.job)
        self.row = None  # a row with an outcome stays in its place
        if isinstance(verdict, Move) and not verdict.outcome:
            self.row = moved(verdict)
        self.is_carry = isinstance(verdict, Move) and is_carried(verdict)
        self.must_list = (
            isinstance(verdict, Move) and not self.is_carry and verdict.at_us < verdict.job.at_us
        )
        self.tries = 0
        self.lost: Unknown | None = None

    def calls(self) -> list[Call]:
        verdict = self.verdict
        if isinstance(verdict, Drop):
            return [rows.drop(verdict.job)]
        if isinstance(verdict, Extend):
            return [rows.extend(verdict)]
        if self.is_carry:
            assert self.row is not None
            return [rows.stub(verdict, self.row)]
        return rows.move(verdict, self.row, is_listed=self.must_list)

    def size(self) -> int:
        """Return the size of what the outcome writes and may be large."""
        if not isinstance(self.verdict, Move):
            return 0
        body = len(self.verdict.job.body) if self.is_hop() else 0
        return len(self.verdict.outcome) + len(self.verdict.error) + body

    def is_hop(self) -> bool:
        return self.row is not None and not self.is_carry and key_of(self.row) != self.key

    def present(self) -> RowVersion | None:
        """Return the row at the outcome's key after it was applied."""
        verdict = self.verdict
        if isinstance(verdict, Drop) or self.is_hop():
            return None
        if isinstance(verdict, Extend):
            return RowVersion(verdict.at_us, verdict.job.token)
        at_us = verdict.job.at_us if self.is_carry else verdict.at_us
        return RowVersion(at_us, verdict.token)

    def status(self, present: Token | None) -> WriteStatus:
        """Return the status of the outcome, by the token in its row."""
        after = self.present()
        return status_of_write(
            present,
            named=self.verdict.job.token,
            written=None if after is None else after.token,
            is_unsure=self.lost is not None,
        )


class _Round(NamedTuple):
    """Batches that are sent at once, one for each lane."""

    batches: Sequence[Sequence[_Item]]

    def listings(self) -> Mapping[Lane, int]:
        """Return the lanes to list first, with the lowest bucket of each."""
        listings: dict[Lane, int] = {}
        for batch in self.batches:
            for item in batch:
                if item.must_list and isinstance(item.verdict, Move):
                    lane, listing = item.verdict.job.lane, item.verdict.listing
                    listings[lane] = min(listing, listings.get(lane, listing))
        return listings


class Verdicts:
    """Applies outcomes."""

    def __init__(
        self, session: CassandraSession, cursors: CursorCache, lane_index: LaneIndex
    ) -> None:
        self._session = session
        self._cursors = cursors
        self._lane_index = lane_index

    def settle(self, verdicts: Sequence[Verdict]) -> list[bool]:
        """Apply outcomes, each on its own; two on one row in their order.

        Decided rows are deleted by plain writes: they only go (rule P5).

        Raises:
          StoreUnavailable: None was applied.
          Unknown: Some may have been applied.
        """
        held = [False] * len(verdicts)
        items: list[_Item] = []
        decided: list[Job] = []
        for place, verdict in enumerate(verdicts):
            if isinstance(verdict, Drop) and verdict.job.outcome:
                decided.append(verdict.job)
                held[place] = True
            else:
                items.append(_Item(place, verdict))
        try:
            self._settle_into(held, items)
            self._erase(decided)
        except StoreUnavailable as error:
            if len(verdicts) > 1 or (items and items[0].lost):  # others may have been applied
                raise Unknown(f"{error.message} Some outcomes may have been applied.") from error
            raise
        return held

    def _settle_into(self, held: list[bool], items: Sequence[_Item]) -> None:
        waiting: dict[Lane, deque[_Item]] = {}
        for item in items:
            waiting.setdefault(item.verdict.job.lane, deque()).append(item)
        carried: list[Found] = []
        while waiting:
            batches = [_next_batch(items) for items in waiting.values()]
            round_ = _Round(batches)
            self._index(batches)
            answers = self._list_and(
                round_.listings(),
                lambda round_=round_: self._session.decide_many(  # type: ignore[misc]
                    [[call for item in batch for call in item.calls()] for batch in round_.batches]
                ),
            )
            for batch, answer in zip(batches, answers, strict=True):
                again: list[_Item] = []
                for item, has_held in self._decided(batch, answer, again):
                    held[item.place] = has_held
                    if has_held and item.is_carry:
                        carried.append(_stub_of(item))
                waiting[batch[0].verdict.job.lane].extendleft(reversed(again))
            waiting = {lane: items for lane, items in waiting.items() if items}
        self.carry(carried)

    def _erase(self, decided: Sequence[Job]) -> None:
        """Delete rows with outcomes, whose effects are stored."""
        by_lane: dict[Lane, list[Job]] = {}
        for job in decided:
            by_lane.setdefault(job.lane, []).append(job)
        self._session.write(
            [list(map(rows.erase, part)) for jobs in by_lane.values() for part in rows.chunks(jobs)]
        )
        for lane, jobs in by_lane.items():
            self._cursors.learn_all(lane, [(key_of(job), None) for job in jobs])

    def carry(self, stubs: Sequence[Found]) -> None:
        """Complete stubs: insert their target rows, then delete the stubs (rules K3, K4).

        If a result stays unknown, the next process that reads the stub completes it. All of this
        may be repeated: the target is inserted once, and a stub is deleted under its token.
        """
        if not stubs:
            return
        targets = [rows.target_of(stub) for stub in stubs]
        listings: dict[Lane, int] = {}
        for target, listing in targets:
            listings[target.lane] = min(listing, listings.get(target.lane, listing))
        unsure = self._insert([target for target, _ in targets], listings, rows.insert_whole)
        by_lane: dict[Lane, list[Found]] = {}
        for stub, is_unsure in zip(stubs, unsure, strict=True):
            if not is_unsure:
                by_lane.setdefault(stub.job.lane, []).append(stub)
        batches = [batch for group in by_lane.values() for batch in rows.chunks(group)]
        answers = self._session.decide_many(
            [[rows.drop(stub.job) for stub in batch] for batch in batches]
        )
        for batch, answer in zip(batches, answers, strict=True):
            if isinstance(answer, Answer) and answer.is_applied:
                for stub in batch:
                    self._cursors.learn(stub.job.lane, key_of(stub.job), None)

    def add(self, jobs: Sequence[Job]) -> list[bool]:
        """List the lanes of new jobs, insert index and rows, check the list (rules E2 to E4)."""
        listings = {job.lane: job.lane.bucket for job in jobs}
        return [not is_unsure for is_unsure in self._insert(jobs, listings, rows.insert)]

    def _insert(
        self, jobs: Sequence[Job], listings: Mapping[Lane, int], write: Callable[[Job], Call]
    ) -> list[bool]:
        """Insert rows and their index; return for each whether the result is unknown."""
        by_lane: dict[Lane, list[Job]] = {}
        for job in jobs:
            by_lane.setdefault(job.lane, []).append(job)
        each = [batch for group in by_lane.values() for batch in rows.insert_batches(group, write)]
        batches = [
            (
                [job for batch, _ in each[part] for job in batch],
                [call for _, calls in each[part] for call in calls],
            )
            for part in rows.together([calls for _, calls in each])
        ]

        def insert() -> set[tuple[Lane, Key]]:
            self._session.write(index_batches(jobs))
            errors = self._session.write_many([calls for _, calls in batches])
            return {
                (job.lane, key_of(job))
                for (batch, _), error in zip(batches, errors, strict=True)
                if error is not None
                for job in batch
            }

        failed, unlisted = self._lane_index.acknowledge(listings, insert)
        for lane, group in by_lane.items():
            self._cursors.learn_inserts(lane, [(key_of(job), rows.seen(job)) for job in group])
        return [job.lane in unlisted or (job.lane, key_of(job)) in failed for job in jobs]

    def _index(self, batches: Sequence[Sequence[_Item]]) -> None:
        """Insert the new places of rows into the index, before the rows move."""
        hops = [item.row for batch in batches for item in batch if item.is_hop() and item.row]
        self._session.write(index_batches(hops))

    def _list_and(
        self, listings: Mapping[Lane, int], write: Callable[[], list[Answer | DuelineError]]
    ) -> list[Answer | DuelineError]:
        if not listings:
            return write()
        answers, unlisted = self._lane_index.acknowledge(listings, write)
        if unlisted:
            raise Unknown(f"The lane {next(iter(unlisted))} could not be listed.")
        return answers

    def _decided(
        self, batch: Sequence[_Item], answer: Answer | DuelineError, again: list[_Item]
    ) -> list[tuple[_Item, bool]]:
        """Return whether each outcome of a batch was applied; add undecided ones to `again`."""
        if isinstance(answer, Answer) and answer.is_applied:
            self._learn(batch)
            return [(item, True) for item in batch]
        known: list[tuple[_Item, bool]] = []
        if isinstance(answer, Answer):
            present = {rows.key_in(row): row for row in answer.rows}
            tokens = {key: row["claim_token"] for key, row in present.items()}
            for item in batch:
                row = present.get(item.key)
                if self._is_known(item, batch, tokens, known):
                    continue
                if row is not None:
                    _learn_from(row, item)
                again.append(item)
        else:
            known = self._read_back(batch, answer, again)
        for item in again:
            item.tries += 1
            if item.tries > TRIES_MAX:
                raise Unknown("A row keeps changing although it keeps its token.")
        return known

    def _read_back(
        self, batch: Sequence[_Item], error: DuelineError, again: list[_Item]
    ) -> list[tuple[_Item, bool]]:
        """Read the rows of a batch whose answer was lost."""
        if not isinstance(error, Unknown):
            raise error
        for item in batch:
            item.lost = item.lost or error
        lane = batch[0].verdict.job.lane
        text, values = rows.some(lane, [item.key for item in batch])
        answered = self._session.read_back(error, text, values)
        read = [rows.found(lane, row).job for row in answered]
        present = {key_of(job): job.token for job in read}
        known: list[tuple[_Item, bool]] = []
        again += [item for item in batch if not self._is_known(item, batch, present, known)]
        return known

    def _is_known(
        self,
        item: _Item,
        batch: Sequence[_Item],
        present: Mapping[Key, Token],
        known: list[tuple[_Item, bool]],
    ) -> bool:
        """Return whether a row shows the result of an outcome; add the result to `known`.

        Args:
            item: The outcome.
            batch: What was sent with it, which is applied as one.
            present: The tokens of the rows.
            known: Receives the result.
        """
        status = item.status(present.get(item.key))
        if status is WriteStatus.UNKNOWN:
            # Extended rows keep their tokens, so they do not show whether the batch was applied.
            others = [other for other in batch if not isinstance(other.verdict, Extend)]
            if not any(
                other.status(present.get(other.key)) is WriteStatus.OPEN for other in others
            ):
                assert item.lost is not None
                raise item.lost
            status = WriteStatus.REFUSED  # another row of the batch is as it was before
        if status is WriteStatus.HELD:
            self._learn([item])
        if status is not WriteStatus.OPEN:
            known.append((item, status is WriteStatus.HELD))
        return status is not WriteStatus.OPEN

    def _learn(self, batch: Sequence[_Item]) -> None:
        """Update the cursor cache after applied outcomes of one lane."""
        changes: list[tuple[Key, RowVersion | None]] = [
            (item.key, item.present()) for item in batch
        ]
        for item in batch:
            if item.is_hop():
                assert item.row is not None
                changes.append((key_of(item.row), rows.seen(item.row)))
        self._cursors.learn_all(batch[0].verdict.job.lane, changes)


def _next_batch(items: deque[_Item]) -> list[_Item]:
    """Remove and return the next outcomes of a lane, at most one for each row."""
    batch: list[_Item] = []
    keys: set[Key] = set()
    left = BATCH_BYTES_MAX
    while items and len(batch) < BATCH_ROWS_MAX and items[0].key not in keys:
        left -= items[0].size()
        if batch and left < 0:
            break
        keys.add(items[0].key)
        batch.append(items.popleft())
    return batch


def _learn_from(row: Mapping[str, Any], item: _Item) -> None:
    """Adapt an outcome to a row that still has its token.

    A move to an earlier time must list the lane first; an extension is at least as long as before.
    """
    at_us = row.get("at_us")
    verdict = item.verdict
    if not isinstance(verdict, Drop) and at_us is not None and at_us > verdict.at_us:
        if isinstance(verdict, Extend):
            item.verdict = verdict._replace(at_us=at_us)
        else:
            item.must_list = not item.is_carry


def _stub_of(item: _Item) -> Found:
    """Return the stub that an outcome has just written, as if it was read."""
    assert isinstance(item.verdict, Move)
    assert item.row is not None
    job = item.verdict.job._replace(token=item.verdict.token)
    return Found(job, rows.stub_of(item.verdict, item.row))


def index_batches(jobs: Sequence[Job]) -> list[list[Call]]:
    """Return the inserts into the index of jobs, in batches."""
    by_part: dict[bytes, list[Call]] = {}
    for job in jobs:
        by_part.setdefault(rows.part_of(job.id), []).append(rows.index(job))
    batches = [chunk for calls in by_part.values() for chunk in rows.chunks(calls)]
    return [[call for calls in batches[part] for call in calls] for part in rows.together(batches)]
