"""Changes to all jobs that match, which go on where they were stopped.

How far an errand has come is a record. Before a page of jobs is changed, the record names them,
each with its token, and whatever changes a job leaves another. So whoever goes on after a process
was killed knows which jobs of that page were come to, and comes to no job twice.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256

from dueline.admin.search import JobFilter, lanes_like
from dueline.core.clock import DAY_US
from dueline.core.codec import decode, encode
from dueline.core.engine import Engine
from dueline.core.errors import Conflict, StoreUnavailable
from dueline.core.job import Job, JobId
from dueline.core.lane import Lane, living_queue
from dueline.core.pagination import jobs_in, record_at
from dueline.core.store import NO_VERSION, Delete, Put
from dueline.jobs.bulk import PAGE, BulkResult

PARTITION = "errands"
KEEP_US = DAY_US
"""Whoever repeats an errand later than that begins anew."""

IDS_MAX = 100_000
"""How many jobs' ids of a lane are held at once; it is read again for the next."""

Change = Callable[[Sequence[Job]], Iterator[BulkResult]]
"""What is done to jobs that are come to."""


@dataclass(frozen=True, slots=True)
class BulkProgress:
    """How far one has come.

    began_us: jobs that were enqueued later, or died later, are not touched. lane, after: up to
    which id, in which lane, all were come to. page: those that are being changed, each with its
    token. come_to: how many others were.
    """

    began_us: int
    lane: Lane | None = None
    after: str = ""
    page: tuple[tuple[str, str], ...] = ()
    come_to: int = 0

    def is_behind(self, lane: Lane) -> bool:
        """Tell whether all jobs of a lane were come to."""
        return self.lane is not None and lane < self.lane

    def last(self, lane: Lane) -> str:
        """Name the last job of a lane that was come to, or is being changed; "" for none."""
        if lane != self.lane:
            return ""
        return self.page[-1][0] if self.page else self.after


class BulkRun:
    """One errand: what is done to which jobs. Whoever words it alike goes on with it."""

    def __init__(self, engine: Engine, like: JobFilter, words: str) -> None:
        """Take the engine, what jobs are to be like, and all else that tells this from others.

        Raises: StoreCorrupt: its record cannot be read.
        """
        self._engine = engine
        self._like = like
        self._key = sha256(encode([words, like])).hexdigest()[:32]
        self._version = NO_VERSION
        self._progress = BulkProgress(engine.time.latest_us())
        record = record_at(engine.store, PARTITION, self._key)
        self.is_begun = record is not None
        if record is not None:
            self._progress = decode(record.value, BulkProgress)
            self._version = record.version

    @property
    def began_us(self) -> int:
        """When it was begun: jobs that were enqueued or died later are not touched."""
        return self._progress.began_us

    @property
    def come_to(self) -> int:
        """How many jobs were come to."""
        return self._progress.come_to

    def count(self, most: int | None = None) -> int:
        """Count the jobs that are still to be come to; up to `most` and one more."""
        found = len(self._unchanged())
        for lane in self._lanes():
            for _ in self._rows(lane, self._progress.last(lane)):
                found += 1
                if most is not None and found > most:
                    return found
        return found

    def run(self, change: Change, *, limit: int | None = None) -> Iterator[BulkResult]:
        """Change the jobs, page by page; each is come to once, whatever is stopped where.

        Args: limit: so many, and a repeat goes on behind them.

        Raises: Conflict: somebody else goes on with the same errand; jobs up to there are changed.
        """
        left = limit
        unchanged = self._unchanged()
        if unchanged:
            yield from change(unchanged)
            left = None if left is None else left - len(unchanged)
        for lane in self._lanes():
            for ids in self._pages(lane):
                if left is not None and left <= 0:
                    self._note(self._progress.lane or lane, ())
                    return
                page = self._fitting(ids[:left])
                if page:
                    self._note(lane, page)
                    yield from change(page)
                left = None if left is None else left - len(page)
        if self._version != NO_VERSION:
            with suppress(StoreUnavailable):  # all is done, whatever becomes of the record
                self._engine.store.commit(PARTITION, (Delete(self._key, expect=self._version),))

    def _note(self, lane: Lane, page: Sequence[Job]) -> None:
        """Write down which jobs are changed next; those of the page before were come to."""
        last = self._progress
        self._progress = replace(
            last,
            lane=lane,
            after=last.last(lane),
            page=tuple((one.id.hex(), one.token.hex()) for one in page),
            come_to=last.come_to + len(last.page),
        )
        version = self._engine.ids.token()
        expires_us = self._engine.time.latest_us() + KEEP_US
        put = Put(self._key, version, encode(self._progress), self._version, expires_us)
        if not self._engine.store.commit(PARTITION, (put,)):
            raise Conflict(
                "Somebody else has begun to do the same, or goes on with it.",
                hint="Let them come to their end, or repeat this to take over.",
            )
        self._version = version

    def _unchanged(self) -> list[Job]:
        """Find the jobs that were being changed when it was stopped, and are as they were."""
        tokens = dict(self._progress.page)
        fitting = self._fitting([JobId(bytes.fromhex(one)) for one in tokens])
        return [row for row in fitting if row.token.hex() == tokens[row.id.hex()]]

    def _lanes(self) -> list[Lane]:
        """List the lanes that are not left behind, in order."""
        found = set(lanes_like(self._engine, self._like))
        return sorted(lane for lane in found if not self._progress.is_behind(lane))

    def _pages(self, lane: Lane) -> Iterator[list[JobId]]:
        """Read the ids of a lane's jobs that are to be come to, in order, page by page."""
        after = self._progress.last(lane)
        while True:
            ids = heapq.nsmallest(IDS_MAX, (row.id for row in self._rows(lane, after)))
            yield from (ids[start : start + PAGE] for start in range(0, len(ids), PAGE))
            if len(ids) < IDS_MAX:
                return
            after = ids[-1].hex()

    def _rows(self, lane: Lane, last: str) -> Iterator[Job]:
        """Read the rows of a lane that are to be changed, of those whose ids lie behind `last`."""
        now_us = self._engine.time.latest_us()
        for row in jobs_in(self._engine.store, lane):
            if row.id.hex() > last and self._is_meant(row, now_us):
                yield row

    def _fitting(self, ids: Sequence[JobId]) -> list[Job]:
        """Look jobs up as they are now; those that are not meant any more are left out."""
        now_us = self._engine.time.latest_us()
        found = self._engine.store.find(ids) if ids else ()
        return [row for row in found if row is not None and self._is_meant(row, now_us)]

    def _is_meant(self, row: Job, now_us: int) -> bool:
        """Tell whether a job is like that, and was when it was begun, as far as can be seen.

        Who was dead then is looked for among the dead, who lived among the living.
        """
        is_dead = row.lane.queue != living_queue(row.lane.queue)
        return (
            is_dead == (self._like.state == "dead")
            and (row.at_us if is_dead else row.enqueued_us) <= self.began_us
            and self._like.fits(row, now_us)
        )
