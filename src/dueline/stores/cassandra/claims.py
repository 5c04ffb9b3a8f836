"""Claims on Cassandra.

Lanes are read from where the claimer's memory ends, then each lane's rows are claimed by one
conditional batch: several lanes at once, in the order of the wants. A batch that was refused
tells how its rows are; the lane is then tried again with what is left. One whose answer was lost
is repeated as it is until a row of it changes, since it may land at any time (rule U5).
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from dueline.core.errors import DuelineError, StoreUnavailable, Unknown
from dueline.core.job import Job, JobId, Token
from dueline.core.lane import Lane
from dueline.core.store import Claimed, Want
from dueline.stores.cassandra import statements as rows
from dueline.stores.cassandra.answers import Answer
from dueline.stores.cassandra.lane_reader import LanePages, Slice
from dueline.stores.cassandra.session import Call, CassandraSession
from dueline.stores.cassandra.statements import BATCH_ROWS_MAX, Found
from dueline.stores.cursor_cache import CursorCache, Key, LaneScan, Page, RowVersion, key_of

LANES_AT_ONCE: Final = 16
VAIN_ROUNDS_MAX: Final = 6
"""How often a lane is tried when others take its rows first."""


class Terms(NamedTuple):
    """What a claim says of every row that it takes."""

    now_us: int
    lease_us: int
    worker: str
    token: Token


class _Reach:
    """One lane of a claim: its visit, the rows read whole, the batch under way, the jobs won.

    lost: why nobody knows what becomes of the batch, which is sent again as it is; None otherwise.
    """

    def __init__(self, want: Want, visit: LaneScan) -> None:
        self.lane = want.lane
        self.most = want.most
        self.visit = visit
        self.found: dict[Key, Found] = {}
        self.batch: list[Job] = []
        self.lost: Unknown | None = None
        self.claimed: list[Job] = []
        self.won: list[Job] = []
        self.died: list[Job] = []
        self.vain_rounds = 0

    def can_go_on(self) -> bool:
        return len(self.won) < self.most and self.vain_rounds < VAIN_ROUNDS_MAX

    def know(self, found: Found) -> None:
        """Take in a row that was read whole."""
        self.found[key_of(found.job)] = found
        self.visit.note(key_of(found.job), rows.seen(found.job))

    def is_known(self, key: Key) -> bool:
        """Tell whether the whole row is at hand as it was last seen."""
        return key in self.found and rows.seen(self.found[key].job) == self.visit.rows[key]


class Claims:
    """Claims from lanes, with a memory of them."""

    def __init__(
        self,
        session: CassandraSession,
        pages: LanePages,
        recall: CursorCache,
        carry: Callable[[Sequence[Found]], object],
    ) -> None:
        self._session = session
        self._pages = pages
        self._recall = recall
        self._carry = carry

    def claim(self, wants: Sequence[Want], *, limit: int, terms: Terms) -> Claimed:
        """Claim the first rows that are due, want by want.

        Raises: StoreUnavailable: nothing was claimed; what was claimed before a failure is
          returned instead.
        """
        reached: list[_Reach] = []
        left = limit
        while left > 0 and len(reached) < len(wants):
            wave = [self._reach(want, terms) for want in _next_wave(wants, len(reached), left)]
            has_failed = True
            try:
                self._claim_wave(wave, left, terms)
                has_failed = False
            except StoreUnavailable:
                if not any(reach.won for reach in (*reached, *wave)):
                    raise
            finally:
                for reach in wave:
                    (self._recall.abandon if has_failed else self._recall.close)(reach.visit)
            reached += wave
            left -= sum(len(reach.won) for reach in wave)
            if has_failed:
                break
        return _told(reached)

    def _reach(self, want: Want, terms: Terms) -> _Reach:
        visit = self._recall.open(
            want.lane, now_us=terms.now_us, lease_us=terms.lease_us, most=want.most
        )
        return _Reach(want, visit)

    def _claim_wave(self, wave: Sequence[_Reach], limit: int, terms: Terms) -> None:
        """Claim from some lanes, in rounds: each lane's next batch, until nothing is left."""
        self._read_doubtful(wave)
        left = limit
        active = list(wave)
        while active and left > 0:
            self._read_on(active)
            active = self._choose(active, left)
            some = [reach for reach in active if reach.batch]
            answers = self._session.decide_many([_batch(reach, terms) for reach in some])
            failure: StoreUnavailable | None = None
            for reach, answer in zip(some, answers, strict=True):
                try:
                    left -= self._take(reach, answer, terms)
                except StoreUnavailable as error:  # the other lanes may hold what they claimed
                    failure = failure or error
            if failure:
                raise failure
            active = [reach for reach in active if reach.can_go_on()]

    def _read_on(self, active: Sequence[_Reach]) -> None:
        """Read until each lane's first rows are known."""
        while True:
            pages = [
                (reach, self._bounded(reach.lane, page, len(active)))
                for reach in active
                if (page := reach.visit.next_page()) is not None
            ]
            if not pages:
                return
            answers = self._pages.read(
                [Slice(reach.lane, page, is_whole=page.is_first) for reach, page in pages]
            )
            for (reach, page), answer in zip(pages, answers, strict=True):
                if page.is_first:
                    found = self._pages.whole(reach.lane, answer)
                    reach.visit.take(page, [(key_of(one.job), rows.seen(one.job)) for one in found])
                    for one in found:
                        reach.know(one)
                else:
                    reach.visit.take(page, map(rows.thin, answer))

    def _read_doubtful(self, wave: Sequence[_Reach]) -> None:
        """Read again what other processes may have released (rule R9)."""
        some = [reach for reach in wave if reach.visit.doubtful]
        if not some:
            return
        asked = [
            (reach.lane, reach.visit.doubtful[: self._pages.whole_max(reach.lane.queue, len(some))])
            for reach in some
        ]
        answers = self._pages.some(asked)
        for reach, (_, keys), found in zip(some, asked, answers, strict=True):
            self._refresh(reach, keys, found)

    def _bounded(self, lane: Lane, page: Page, share: int) -> Page:
        """Ask for fewer rows where they are read whole and may be large."""
        if not page.is_first:
            return page
        return page._replace(limit=min(page.limit, self._pages.whole_max(lane.queue, share)))

    def _choose(self, active: Sequence[_Reach], left: int) -> list[_Reach]:
        """Fill each lane's next batch, in order; answer the lanes that are not done with.

        Rows known from memory alone are read first: they must be had whole, and as they are.
        """
        again: list[_Reach] = []
        unread: list[tuple[_Reach, list[Key]]] = []
        for reach in active:
            if reach.lost:
                again.append(reach)
                left -= len(reach.batch)
                continue
            due = reach.visit.due(min(reach.most - len(reach.won), left))
            whole_max = self._pages.whole_max(reach.lane.queue, len(active))
            keys = due[: min(BATCH_ROWS_MAX, whole_max)]
            reach.batch = []
            missing = [key for key in keys if not reach.is_known(key)]
            stubs = [reach.found[key] for key in keys if key not in missing]
            stubs = [found for found in stubs if found.stub]
            if missing:
                unread.append((reach, missing))
            elif stubs:
                self._complete(reach, stubs)
            else:
                reach.batch = [reach.found[key].job for key in keys]
            if due or left == 0:  # where nothing is left for it, the lanes before may run dry
                again.append(reach)
            left -= len(due)  # what a later batch of this lane takes is no other lane's
        answers = self._pages.some([(reach.lane, keys) for reach, keys in unread])
        for (reach, keys), found in zip(unread, answers, strict=True):
            self._refresh(reach, keys, found)
        return again

    def _refresh(self, reach: _Reach, keys: Sequence[Key], found: Sequence[Found]) -> None:
        for key in keys:
            reach.visit.note(key, None)
        for one in found:
            reach.know(one)

    def _complete(self, reach: _Reach, stubs: Sequence[Found]) -> None:
        self._carry(stubs)
        for one in stubs:
            reach.visit.note(key_of(one.job), None)

    def _take(self, reach: _Reach, answer: Answer | DuelineError, terms: Terms) -> int:
        """Take in what became of a batch; return how many jobs were won."""
        batch = reach.batch
        if not isinstance(answer, Answer):
            reach.vain_rounds += 1
            return self._read_back(reach, batch, answer, terms)
        reach.batch, reach.lost = [], None
        if answer.is_applied:
            self._win(reach, batch, reach.claimed)
            return len(batch)
        reach.vain_rounds += 1
        won = 0
        present = {rows.key_in(row): row for row in answer.rows}
        for job, claimed in zip(batch, reach.claimed, strict=True):
            row = present.get(key_of(job))
            if row is not None and _is_own(row["claim_token"], terms):
                self._win(reach, [job], [claimed])
                won += 1
                continue
            if row is None or row["state"] != job.state:
                del reach.found[key_of(job)]  # it may be as it was but for its start
            self._note(reach, job, RowVersion(row["at_us"], row["claim_token"]) if row else None)
        return won

    def _read_back(
        self, reach: _Reach, batch: Sequence[Job], error: DuelineError, terms: Terms
    ) -> int:
        """Find out what became of a batch whose answer was lost (rule U2): my token, my rows."""
        if not isinstance(error, StoreUnavailable):
            raise error
        if isinstance(error, Unknown):
            reach.lost = reach.lost or error
        found = {key_of(one.job): one for one in self._read_serial(reach, batch)}
        if reach.lost and all(_is_unchanged(job, found.get(key_of(job))) for job in batch):
            if not reach.can_go_on():
                raise reach.lost
            return 0
        reach.batch, reach.lost = [], None
        won = 0
        for job, claimed in zip(batch, reach.claimed, strict=True):
            one = found.get(key_of(job))
            if one is not None and _is_own(one.job.token, terms):
                self._win(reach, [job], [claimed])
                won += 1
                continue
            if one is not None:
                reach.found[key_of(job)] = one
            self._note(reach, job, rows.seen(one.job) if one else None)
        return won

    def _read_serial(self, reach: _Reach, batch: Sequence[Job]) -> list[Found]:
        text, values = rows.some(reach.lane, [key_of(job) for job in batch])
        if reach.lost:
            read = self._session.read_back(reach.lost, text, values)
        else:
            read = self._session.read_serial(text, values)
        return [rows.found(reach.lane, row) for row in read]

    def _win(self, reach: _Reach, jobs: Sequence[Job], claimed: Sequence[Job]) -> None:
        reach.won += claimed
        reach.died += [job for job in jobs if job.is_claimed()]
        changes = [(key_of(job), rows.seen(job)) for job in claimed]
        for key, seen in changes:
            reach.visit.note(key, seen)
        self._recall.learn_all(reach.lane, changes)

    def _note(self, reach: _Reach, job: Job, seen: RowVersion | None) -> None:
        reach.visit.note(key_of(job), seen)
        self._recall.learn(reach.lane, key_of(job), seen)


def _next_wave(wants: Sequence[Want], start: int, left: int) -> Sequence[Want]:
    """Choose lanes to read at once: as many as may be enough; all that may be, after those."""
    end, promised = start, 0
    while end < len(wants) and end - start < LANES_AT_ONCE and (start or promised < left):
        promised += wants[end].most
        end += 1
    return wants[start:end]


def _batch(reach: _Reach, terms: Terms) -> list[Call]:
    reach.claimed = [rows.claimed(job, *terms) for job in reach.batch]
    return list(map(rows.claim, reach.batch, reach.claimed))


def _is_own(token: Token, terms: Terms) -> bool:
    """Tell whether a row bears a claim's own token (rule U5)."""
    return token == terms.token


def _is_unchanged(job: Job, found: Found | None) -> bool:
    """Tell whether a row is as a claim on it wants it."""
    return (
        found is not None
        and rows.seen(found.job) == rows.seen(job)
        and found.job.state == job.state
    )


def _told(reached: Sequence[_Reach]) -> Claimed:
    next_at_us: dict[Lane, int | None] = {reach.lane: reach.visit.next_at_us() for reach in reached}
    died: dict[JobId, Job] = {job.id: job for reach in reached for job in reach.died}
    return Claimed([job for reach in reached for job in reach.won], died, next_at_us)
