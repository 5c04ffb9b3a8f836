"""Sections of handlers that must not repeat, and their marks.

A section is marked before its body begins, and its end is recorded after the body. Both are
durable. A job whose attempt ends, however, while its section is marked as open does not run again
(rule P14): nobody knows how far the section came, so an operator decides.
Each claim has a mark of its own: what an older claim writes late changes none of a later one. A
section does not begin again after one of an earlier claim (rule P15).
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple

from dueline.core.attempt import SECTION_KEPT_US
from dueline.core.clock import to_datetime
from dueline.core.codec import decode, encode
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, DuelineError, JobTimeout, LeaseLost
from dueline.core.features import SECTIONS
from dueline.core.job import Job, JobId
from dueline.core.logging import log
from dueline.core.pagination import at_once, records_in
from dueline.core.store import NO_VERSION, Commit, Delete, Extend, Group, Put, Store, Write
from dueline.core.store_capabilities import flush_claims, rows_of_event

SECTION: Final = "section"
"""Outcome of the events of sections, in the history of queues that records all that happens.

Their text is one of the following words.
"""
BEGAN, ENDED, FAILED = "began", "ended", "failed"


class SectionRepeated(DuelineError):
    """A section that must not repeat began under an earlier claim."""


@dataclass(frozen=True, slots=True)
class _Record:
    """A stored mark. at_us: when the section began."""

    is_open: bool
    at_us: int
    worker: str


class Mark(NamedTuple):
    """The mark of the sections of one claim."""

    fence: int
    is_open: bool
    at_us: int
    worker: str
    version: bytes

    def text(self) -> str:
        """Return what is known of the section."""
        began = to_datetime(self.at_us).isoformat(" ", "seconds")
        return f"claim {self.fence}, worker {self.worker}, began at {began}"


def partition_of(job_id: JobId) -> str:
    """Return the partition of the marks of a job."""
    return f"sections/{job_id.hex()}"


def marks_of(store: Store, job_id: JobId) -> list[Mark]:
    """Read the marks of a job, the oldest claim first."""
    marks = []
    for record in records_in(store, partition_of(job_id)):
        known = decode(record.value, _Record)
        mark = Mark(int(record.key), known.is_open, known.at_us, known.worker, record.version)
        marks.append(mark)
    return marks


def open_in(store: Store, jobs: Sequence[Job]) -> Mapping[JobId, str]:
    """Return why jobs may not run again: sections that began under their claims and did not end."""
    read = at_once(store, lambda job: marks_of(store, job.id), jobs)
    reasons: dict[JobId, str] = {}
    for job, marks in zip(jobs, read, strict=True):
        for mark in marks:
            if mark.is_open and mark.fence <= job.fence:
                reasons[job.id] = f"A section that must not repeat did not end: {mark.text()}."
    return reasons


def withdraw(store: Store, jobs: Iterable[Job]) -> None:
    """Delete the marks of dead-letter jobs, so that an operator can run them again."""
    for job in jobs:
        if job.fence and (marks := marks_of(store, job.id)):
            store.commit(partition_of(job.id), [Delete(_key(mark.fence)) for mark in marks])


def _key(fence: int) -> str:
    return f"{fence:010}"


class Section:
    """A section of one attempt that must not repeat; a context manager, also with `async with`.

    Attributes:
      is_open: Whether it is marked as open, as far as this process knows.
      refusal: Why it did not begin, since one began under an earlier claim.
    """

    def __init__(self, engine: Engine | None, job: Job) -> None:
        self._engine = engine
        self._job = job
        self._version = NO_VERSION
        self._began_us = 0
        self._has_ended = False
        self._is_entered = False
        self.is_open = False
        self.refusal = ""

    def __enter__(self) -> None:
        """Mark the section durably.

        Raises:
          SectionRepeated: One began under an earlier claim. Do not catch it.
          LeaseLost: The claim was lost. Do not catch it.
          BadInput: A section of this attempt is open.
        """
        if self._is_entered:
            raise BadInput(
                f"A section of the job {self._job.id.hex()} is open already.",
                hint="Sections that must not repeat come one after the other.",
            )
        if self._engine is not None:
            self._begin(self._engine)
        self._is_entered = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Record durably that the section ended, unless it was interrupted."""
        self._is_entered = False
        if self._engine is not None and not _is_interrupt(error):
            try:
                self._end(self._engine, is_success=error is None)
            except DuelineError as failed:
                if error is None:
                    raise
                log.warning("job=%s: the end of its section was not stored: %s",
                            self._job.id.hex(), failed.message)  # fmt: skip

    async def __aenter__(self) -> None:
        """Mark the section, as `with` does."""
        from asyncio import to_thread  # noqa: PLC0415  (only coroutines need it)

        await to_thread(self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Record that the section ended, as `with` does."""
        from asyncio import to_thread  # noqa: PLC0415  (only coroutines need it)

        if _is_interrupt(error):
            self._is_entered = False
        else:
            await to_thread(self.__exit__, kind, error, traceback)

    def _begin(self, engine: Engine) -> None:
        store = engine.store
        engine.catalog.adopt(SECTIONS)
        if self._version == NO_VERSION:
            self._expect_first(store)
        self._began_us = engine.time.latest_us()
        try:
            self._mark(engine)
        except BaseException:  # also an interrupt: the body has not begun
            with suppress(DuelineError):
                self._write_end(engine, FAILED, expect=None)
            raise
        self.is_open = True

    def _mark(self, engine: Engine) -> None:
        """Store the mark, then confirm the claim: so each later claim finds the mark."""
        store, job = engine.store, self._job
        put = self._put(engine, is_open=True, expect=self._version)
        self._version = put.version
        is_marked = store.commit(partition_of(job.id), (put,))
        if not is_marked or not self._confirm(engine):
            raise LeaseLost(f"The claim on job {job.id.hex()} was lost.")
        flush_claims(store)

    def _confirm(self, engine: Engine) -> bool:
        """Confirm the claim by a start mark, and record that the section begins."""
        extend = Extend(self._job, self._job.at_us, started=True)
        rows = rows_of_event(engine.recording_store, self._job, SECTION, self._began_us, BEGAN)
        return engine.store.together([Group([extend], rows=rows)])[0]

    def _expect_first(self, store: Store) -> None:
        """Raise if a section began under an earlier claim; whether it ended does not matter."""
        for mark in marks_of(store, self._job.id):
            if mark.fence != self._job.fence:
                how = "did not end" if mark.is_open else "ended"
                self.refusal = f"It would begin again; an earlier one {how}: {mark.text()}."
                raise SectionRepeated(self.refusal)

    def _end(self, engine: Engine, *, is_success: bool) -> None:
        """Replace the mark; a mark that an operator deleted meanwhile is left so."""
        self._has_ended = self._has_ended or is_success
        self._write_end(engine, ENDED if is_success else FAILED, expect=self._version)
        self.is_open = False

    def _write_end(self, engine: Engine, how: str, *, expect: bytes | None) -> None:
        """Replace the mark, and record how the section ended."""
        now_us = engine.time.latest_us()
        rows = rows_of_event(engine.recording_store, self._job, SECTION, now_us, how)
        commit = Commit(partition_of(self._job.id), self._last_write(engine, expect=expect))
        engine.store.together([Group(commits=[commit], rows=rows)])

    def _last_write(self, engine: Engine, *, expect: bytes | None = None) -> Sequence[Write]:
        """Return the write after a section: that one ended, or that none has begun."""
        if not self._has_ended:
            self._version = NO_VERSION
            return (Delete(_key(self._job.fence), expect),)
        put = self._put(engine, is_open=False, expect=expect)
        self._version = put.version
        return (put,)

    def _put(self, engine: Engine, *, is_open: bool, expect: bytes | None) -> Put:
        value = encode(_Record(is_open, self._began_us, self._job.worker))
        until_us = None if is_open else engine.time.latest_us() + SECTION_KEPT_US
        return Put(_key(self._job.fence), engine.ids.token(), value, expect, until_us)


def _is_interrupt(error: BaseException | None) -> bool:
    """Return whether an exception says nothing of how far the body came.

    Time limits, the end of the claim and cancellations of coroutines reach a body anywhere.
    """
    return error is not None and (
        isinstance(error, JobTimeout | LeaseLost) or not isinstance(error, Exception)
    )
