"""Claims on Cassandra.

Lanes are read from their cursors. One conditional batch claims the rows of each lane, several
lanes at once, in the order of the wants. The answer to a rejected batch has the present rows; the
lane is then tried again with the rest. A batch whose answer was lost is repeated until one of its
rows changes, since it may still be applied (rule U5).
"""

from collections.abc import Callable, Sequence
from typing import Final

from dueline.core.errors import DuelineError, StoreUnavailable, Unknown
from dueline.core.job import Job, JobId, Token
from dueline.core.lane import Lane
from dueline.core.store import Claimed, Lease, Want
from dueline.stores.cassandra import statements as rows
from dueline.stores.cassandra.answers import Answer
from dueline.stores.cassandra.lane_reader import LanePages, Slice
from dueline.stores.cassandra.session import Call, CassandraSession
from dueline.stores.cassandra.statements import BATCH_ROWS_MAX, Found
from dueline.stores.cursor_cache import CursorCache, Key, LaneScan, Page, RowVersion, key_of
from dueline.stores.row_updates import claimed

LANES_AT_ONCE: Final = 16
VAIN_ROUNDS_MAX: Final = 6
"""Maximum number of attempts to claim from a lane whose rows other workers claim first."""


class _LaneClaim:
    """The part of a claim in one lane: its scan, whole rows, current batch and claimed jobs.

    lost: The error of a batch whose answer was lost and that is sent again; None otherwise.
    """

    def __init__(self, lane: Lane, most: int, scan: LaneScan) -> None:
        self.lane = lane
        self.most = most
        self.scan = scan
        self.found: dict[Key, Found] = {}
        self.batch: list[Job] = []
        self.lost: Unknown | None = None
        self.claimed: list[Job] = []
        self.won: list[Job] = []
        self.died: list[Job] = []
        self.vain_rounds = 0

    def can_go_on(self) -> bool:
        return len(self.won) < self.most and self.vain_rounds < VAIN_ROUNDS_MAX

    def know(self, row: Found) -> None:
        """Add a row that was read whole."""
        key = key_of(row.job)
        self.found[key] = row
        self.scan.note(key, rows.seen(row.job))

    def take(self, page: Page, read: Sequence[Found]) -> None:
        """Add the rows of a page that was read whole."""
        by_key = {key_of(row.job): row for row in read}
        self.found |= by_key
        self.scan.take(page, [(key, rows.seen(row.job)) for key, row in by_key.items()])

    def is_known(self, key: Key) -> bool:
        """Return whether the whole row is known in its latest version."""
        row = self.found.get(key)
        if row is None:
            return False
        at_us, token = self.scan.rows[key]
        return row.job.at_us == at_us and row.job.token == token


class Claims:
    """Claims from lanes, with a cursor cache."""

    def __init__(
        self,
        session: CassandraSession,
        pages: LanePages,
        cursors: CursorCache,
        carry: Callable[[Sequence[Found]], object],
    ) -> None:
        self._session = session
        self._pages = pages
        self._cursors = cursors
        self._carry = carry

    def claim(self, wants: Sequence[Want], *, limit: int, lease: Lease) -> Claimed:
        """Claim the first due rows, want by want.

        Raises:
          StoreUnavailable: Nothing was claimed. Claims before a failure are returned instead.
        """
        parts: list[_LaneClaim] = []
        left = limit
        while left > 0 and len(parts) < len(wants):
            wave = [
                self._open(want.lane, min(want.most, left), lease)
                for want in _next_wave(wants, len(parts), left)
            ]
            has_failed = True
            try:
                self._claim_wave(wave, left, lease)
                has_failed = False
            except StoreUnavailable:
                if not any(part.won for part in (*parts, *wave)):
                    raise
            finally:
                for part in wave:
                    (self._cursors.abandon if has_failed else self._cursors.close)(part.scan)
            parts += wave
            left -= sum(len(part.won) for part in wave)
            if has_failed:
                break
        return _result_of(parts)

    def _open(self, lane: Lane, most: int, lease: Lease) -> _LaneClaim:
        scan = self._cursors.open(lane, now_us=lease.now_us, lease_us=lease.duration_us, most=most)
        return _LaneClaim(lane, most, scan)

    def _claim_wave(self, wave: Sequence[_LaneClaim], limit: int, lease: Lease) -> None:
        """Claim from some lanes in rounds, one batch of each lane a round."""
        self._read_unconfirmed(wave)
        left = limit
        active = list(wave)
        while active and left > 0:
            self._read_on(active)
            active = self._choose(active, left)
            batched = [part for part in active if part.batch]
            answers = self._session.decide_many([_batch(part, lease) for part in batched])
            failure: StoreUnavailable | None = None
            for part, answer in zip(batched, answers, strict=True):
                try:
                    left -= self._take(part, answer, lease)
                except StoreUnavailable as error:  # batches of other lanes may have been applied
                    failure = failure or error
            if failure:
                raise failure
            active = [part for part in active if part.can_go_on()]

    def _read_on(self, active: Sequence[_LaneClaim]) -> None:
        """Read pages until the first rows of each lane are known."""
        while True:
            pages = [
                (part, self._bounded(part.lane, page, len(active)))
                for part in active
                if (page := part.scan.next_page()) is not None
            ]
            if not pages:
                return
            answers = self._pages.read(
                [Slice(part.lane, page, is_whole=page.is_first) for part, page in pages]
            )
            for (part, page), answer in zip(pages, answers, strict=True):
                if page.is_first:
                    part.take(page, self._pages.whole(part.lane, answer))
                else:
                    part.scan.take(page, map(rows.thin, answer))

    def _read_unconfirmed(self, wave: Sequence[_LaneClaim]) -> None:
        """Read rows again that other processes may have released (rule R9)."""
        wave = [part for part in wave if part.scan.unconfirmed]
        if not wave:
            return
        asked = [
            (part.lane, part.scan.unconfirmed[: self._pages.whole_max(part.lane.queue, len(wave))])
            for part in wave
        ]
        answers = self._pages.some(asked)
        for part, (_, keys), read in zip(wave, asked, answers, strict=True):
            self._refresh(part, keys, read)

    def _bounded(self, lane: Lane, page: Page, share: int) -> Page:
        """Limit a page of whole rows, which may be large."""
        if not page.is_first:
            return page
        return page._replace(limit=min(page.limit, self._pages.whole_max(lane.queue, share)))

    def _choose(self, active: Sequence[_LaneClaim], left: int) -> list[_LaneClaim]:
        """Fill the next batch of each lane, in order; return the lanes that may have more.

        Rows that are only cached are read first.
        """
        again: list[_LaneClaim] = []
        unread: list[tuple[_LaneClaim, list[Key]]] = []
        for part in active:
            if part.lost:
                again.append(part)
                left -= len(part.batch)
                continue
            due = part.scan.due(min(part.most - len(part.won), left))
            whole_max = self._pages.whole_max(part.lane.queue, len(active))
            keys = due[: min(BATCH_ROWS_MAX, whole_max)]
            part.batch = []
            missing = [key for key in keys if not part.is_known(key)]
            if missing:
                unread.append((part, missing))
            elif stubs := [part.found[key] for key in keys if part.found[key].stub]:
                self._carry(stubs)
                for stub in stubs:
                    part.scan.note(key_of(stub.job), None)
            else:
                part.batch = [part.found[key].job for key in keys]
            if due or left == 0:  # with nothing left: earlier lanes may yield less
                again.append(part)
            left -= len(due)  # a later batch of this lane may take these
        answers = self._pages.some([(part.lane, keys) for part, keys in unread])
        for (part, keys), read in zip(unread, answers, strict=True):
            self._refresh(part, keys, read)
        return again

    def _refresh(self, part: _LaneClaim, keys: Sequence[Key], read: Sequence[Found]) -> None:
        for key in keys:
            part.scan.note(key, None)
        for row in read:
            part.know(row)

    def _take(self, part: _LaneClaim, answer: Answer | DuelineError, lease: Lease) -> int:
        """Process the answer to a batch; return the number of claimed jobs."""
        batch = part.batch
        if not isinstance(answer, Answer):
            part.vain_rounds += 1
            return self._read_back(part, batch, answer, lease)
        part.batch, part.lost = [], None
        if answer.is_applied:
            self._win(part, batch, part.claimed)
            return len(batch)
        part.vain_rounds += 1
        won = 0
        present = {rows.key_in(row): row for row in answer.rows}
        for job, row_after in zip(batch, part.claimed, strict=True):
            row = present.get(key_of(job))
            if row is not None and _is_own(row["claim_token"], lease):
                self._win(part, [job], [row_after])
                won += 1
                continue
            if row is None or row["state"] != job.state:
                del part.found[key_of(job)]  # only its state may have changed
            self._note(part, job, RowVersion(row["at_us"], row["claim_token"]) if row else None)
        return won

    def _read_back(
        self, part: _LaneClaim, batch: Sequence[Job], error: DuelineError, lease: Lease
    ) -> int:
        """Read the rows of a batch whose answer was lost; rows with its token are claimed."""
        if not isinstance(error, StoreUnavailable):
            raise error
        if isinstance(error, Unknown):
            part.lost = part.lost or error
        by_key = {key_of(row.job): row for row in self._read_serial(part, batch)}
        if part.lost and all(_is_unchanged(job, by_key.get(key_of(job))) for job in batch):
            if not part.can_go_on():
                raise part.lost
            return 0
        part.batch, part.lost = [], None
        won = 0
        for job, row_after in zip(batch, part.claimed, strict=True):
            row = by_key.get(key_of(job))
            if row is not None and _is_own(row.job.token, lease):
                self._win(part, [job], [row_after])
                won += 1
                continue
            if row is not None:
                part.found[key_of(job)] = row
            self._note(part, job, rows.seen(row.job) if row else None)
        return won

    def _read_serial(self, part: _LaneClaim, batch: Sequence[Job]) -> list[Found]:
        text, values = rows.some(part.lane, [key_of(job) for job in batch])
        if part.lost:
            read = self._session.read_back(part.lost, text, values)
        else:
            read = self._session.read_serial(text, values)
        return [rows.found(part.lane, row) for row in read]

    def _win(self, part: _LaneClaim, jobs: Sequence[Job], claimed: Sequence[Job]) -> None:
        part.won += claimed
        part.died += [job for job in jobs if job.is_claimed()]
        changes = [(key_of(job), rows.seen(job)) for job in claimed]
        for key, seen in changes:
            part.scan.note(key, seen)
        self._cursors.learn_all(part.lane, changes)

    def _note(self, part: _LaneClaim, job: Job, seen: RowVersion | None) -> None:
        part.scan.note(key_of(job), seen)
        self._cursors.learn(part.lane, key_of(job), seen)


def _next_wave(wants: Sequence[Want], start: int, left: int) -> Sequence[Want]:
    """Return the lanes to read at once: first as many as may be enough, then more."""
    end, promised = start, 0
    while end < len(wants) and end - start < LANES_AT_ONCE and (start or promised < left):
        promised += wants[end].most
        end += 1
    return wants[start:end]


def _batch(part: _LaneClaim, lease: Lease) -> list[Call]:
    part.claimed = [claimed(job, lease) for job in part.batch]
    return list(map(rows.claim, part.batch, part.claimed))


def _is_own(token: Token, lease: Lease) -> bool:
    """Return whether a row has the claim's own token (rule U5)."""
    return token == lease.token


def _is_unchanged(job: Job, row: Found | None) -> bool:
    """Return whether a row still has the values that a claim of it expects."""
    return row is not None and rows.seen(row.job) == rows.seen(job) and row.job.state == job.state


def _result_of(parts: Sequence[_LaneClaim]) -> Claimed:
    next_at_us: dict[Lane, int | None] = {part.lane: part.scan.next_at_us() for part in parts}
    died: dict[JobId, Job] = {job.id: job for part in parts for job in part.died}
    return Claimed([job for part in parts for job in part.won], died, next_at_us)
