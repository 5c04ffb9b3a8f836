"""Bulk operations on all jobs that match, which resume where they stopped.

The progress of a bulk run is a record. Before a page of jobs is changed, the record lists them with
their tokens, and each change of a job changes its token. So after a process was killed, the next
one knows which jobs of that page are done, and never processes a job twice.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import islice

from dueline.admin.search import JobFilter, lanes_like
from dueline.core.clock import DAY_US
from dueline.core.codec import encode
from dueline.core.engine import Engine
from dueline.core.errors import Conflict, StoreUnavailable
from dueline.core.job import Job, JobId
from dueline.core.lane import Lane, living_queue
from dueline.core.pagination import jobs_in
from dueline.core.readable_records import value_at
from dueline.core.store import NO_VERSION, Delete, Put
from dueline.jobs.bulk import PAGE, BulkResult

PARTITION = "errands"
KEEP_US = DAY_US
"""How long a bulk run can be resumed; after that it starts again."""

IDS_MAX = 100_000
"""Maximum number of job ids of a lane in memory; the lane is read again for the next."""

Change = Callable[[Sequence[Job]], Iterator[BulkResult]]
"""What is done to a page of jobs."""


@dataclass(frozen=True, slots=True)
class BulkProgress:
    """The stored progress of a bulk run.

    began_us: jobs that were enqueued or died later are not changed. lane, after: all jobs up to
    this id in this lane are processed. page: the jobs in progress, each with its token. come_to:
    number of processed jobs before them.
    """

    began_us: int
    lane: Lane | None = None
    after: str = ""
    page: tuple[tuple[str, str], ...] = ()
    come_to: int = 0

    def is_behind(self, lane: Lane) -> bool:
        """Return whether all jobs of a lane are processed."""
        return self.lane is not None and lane < self.lane

    def last(self, lane: Lane) -> str:
        """Return the last job of a lane that is processed or in progress; "" for none."""
        if lane != self.lane:
            return ""
        return self.page[-1][0] if self.page else self.after


_ALWAYS = ("state", "queue", "task", "tenant", "due_before_us", "tag", "but")
"""Fields of a filter that are part of the identity of a run even if they match any."""


def _identity(like: JobFilter) -> dict[str, object]:
    return {
        name: value for name, value in asdict(like).items() if name in _ALWAYS or value is not None
    }


class BulkRun:
    """One bulk run: an operation on the jobs of a filter. The same operation resumes it.

    Args:
        words: Identifies the operation.

    Raises:
        StoreCorrupt: Its record cannot be read.
    """

    def __init__(self, engine: Engine, like: JobFilter, words: str) -> None:
        self._engine = engine
        self._like = like
        self.key = sha256(encode([words, _identity(like)])).hexdigest()[:32]
        begun, self._version = value_at(engine.store, PARTITION, self.key, BulkProgress)
        self.is_begun = begun is not None
        self._progress = begun or BulkProgress(engine.time.latest_us())

    @property
    def began_us(self) -> int:
        """When it started: jobs that were enqueued or died later are not changed."""
        return self._progress.began_us

    @property
    def processed(self) -> int:
        """Number of processed jobs."""
        return self._progress.come_to

    def count(self, most: int | None = None) -> int:
        """Count the jobs that are still to be processed; up to `most` and one more."""
        return sum(1 for _ in islice(self.matching(), None if most is None else most + 1))

    def matching(self) -> Iterator[Job]:
        """Yield the jobs that are still to be processed."""
        yield from self._unchanged()
        for lane in self._lanes():
            yield from self._rows(lane, self._progress.last(lane))

    def run(
        self, change: Change, *, limit: int | None = None, size: int | None = None
    ) -> Iterator[BulkResult]:
        """Change the jobs, page by page; each is processed once, even if processes are killed.

        Args: limit: maximum number of jobs; a repeat continues after them. size: maximum number of
          jobs of a page.

        Raises: Conflict: another process continues this bulk run; jobs so far are changed.
        """
        left = limit
        unchanged = self._unchanged()
        if unchanged:
            yield from change(unchanged)
            left = None if left is None else left - len(unchanged)
        for lane in self._lanes():
            for ids in self._pages(lane):
                while ids:
                    if left is not None and left <= 0:
                        self._note(self._progress.lane or lane, ())
                        return
                    part = ids[: len(ids) if left is None else left][:size]
                    del ids[: len(part)]
                    page = self._fitting(part)
                    if page:
                        self._note(lane, page)
                        yield from change(page)
                    left = None if left is None else left - len(page)
        if self._version != NO_VERSION:
            with suppress(StoreUnavailable):  # all is done, even if the record stays
                self._engine.store.commit(PARTITION, (Delete(self.key, expect=self._version),))

    def _note(self, lane: Lane, page: Sequence[Job]) -> None:
        """Record which jobs are changed next; those of the page before are processed."""
        last = self._progress
        self._progress = replace(
            last,
            lane=lane,
            after=last.last(lane),
            page=tuple((job.id.hex(), job.token.hex()) for job in page),
            come_to=last.come_to + len(last.page),
        )
        version = self._engine.ids.token()
        expires_us = self._engine.time.latest_us() + KEEP_US
        put = Put(self.key, version, encode(self._progress), self._version, expires_us)
        if not self._engine.store.commit(PARTITION, (put,)):
            raise Conflict(
                "Another process is running the same bulk operation.",
                hint="Wait for it to finish, or run the command again to take it over.",
            )
        self._version = version

    def _unchanged(self) -> list[Job]:
        """Return the jobs that were in progress when it stopped, and are unchanged."""
        tokens = dict(self._progress.page)
        fitting = self._fitting([JobId(bytes.fromhex(token)) for token in tokens])
        return [row for row in fitting if row.token.hex() == tokens[row.id.hex()]]

    def _lanes(self) -> list[Lane]:
        """Return the lanes that are not fully processed, in order."""
        lanes = set(lanes_like(self._engine, self._like))
        return sorted(lane for lane in lanes if not self._progress.is_behind(lane))

    def _pages(self, lane: Lane) -> Iterator[list[JobId]]:
        """Yield the ids of the jobs of a lane to process, in order, page by page."""
        after = self._progress.last(lane)
        while True:
            ids = heapq.nsmallest(IDS_MAX, (row.id for row in self._rows(lane, after)))
            yield from (ids[start : start + PAGE] for start in range(0, len(ids), PAGE))
            if len(ids) < IDS_MAX:
                return
            after = ids[-1].hex()

    def _rows(self, lane: Lane, last: str) -> Iterator[Job]:
        """Yield the rows of a lane to change, with ids after `last`."""
        now_us = self._engine.time.latest_us()
        for row in jobs_in(self._engine.store, lane):
            if row.id.hex() > last and self._is_meant(row, now_us):
                yield row

    def _fitting(self, ids: Sequence[JobId]) -> list[Job]:
        """Read jobs as they are now; those that no longer match are omitted."""
        now_us = self._engine.time.latest_us()
        rows = self._engine.store.find(ids) if ids else ()
        return [row for row in rows if row is not None and self._is_meant(row, now_us)]

    def _is_meant(self, row: Job, now_us: int) -> bool:
        """Return whether a job matches, and did when the run started, as far as can be seen.

        Jobs that were dead then are matched as dead jobs, other jobs as living ones.
        """
        is_dead = row.lane.queue != living_queue(row.lane.queue)
        return (
            is_dead == (self._like.state == "dead")
            and (row.at_us if is_dead else row.enqueued_us) <= self.began_us
            and self._like.fits(row, now_us)
        )
