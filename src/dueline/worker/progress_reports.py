"""Stores the progress and the partial results that handlers report."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from dueline.core.engine import Engine
from dueline.core.errors import Conflict
from dueline.core.job import Claim, Job, JobId
from dueline.core.pagination import at_once
from dueline.core.store import NO_VERSION
from dueline.jobs import progress_records
from dueline.jobs.progress_records import Known
from dueline.tasks.progress import Progress, ProgressReport
from dueline.worker.chunk_inbox import ChunkInbox
from dueline.worker.chunk_writer import ChunkWriter

_ROUNDS_MAX: Final = 5
_KNOWN_MAX: Final = 10_000


class ProgressReports:
    """Takes reports from handlers, and stores the last one of each job.

    A record names the claim that wrote it. A claim that is not a job's first opens the record
    before its handler is called. From then on an older claim writes nothing, and learns that it was
    lost (rule L2).
    """

    def __init__(
        self,
        engine: Engine,
        take: Callable[[], Mapping[Claim, ProgressReport]],
        chunks: ChunkInbox | None = None,
    ) -> None:
        self._engine = engine
        self._chunks = ChunkWriter(engine, ChunkInbox() if chunks is None else chunks)
        self._take = take
        self._spent: dict[Claim, Sequence[tuple[str, int]]] = {}
        self._unwritten: dict[Claim, Progress] = {}
        self._versions: dict[Claim, bytes] = {}  # of the records as these claims wrote them
        self._guard = threading.Lock()

    def write(self, only: Collection[Claim] | None = None) -> list[Claim]:
        """Store the last reports, of some claims or of all, in one call, and all partial results.

        Args:
            only: Claims that have ended; None for all.

        Returns:
            The claims that were lost, since a later one has opened the record.

        Raises:
            StoreUnavailable: The reports are kept for the next call.
        """
        self._chunks.write(ended=only or ())
        with self._guard:
            reports = self._take()
            if reports:
                at_us = self._engine.time.latest_us()
                self._unwritten.update(
                    {
                        claim: Progress(report.done, report.total, report.note, at_us, report.meta)
                        for claim, report in reports.items()
                        if report.says_progress
                    }
                )
                self._spent |= {claim: said.spent for claim, said in reports.items() if said.spent}
            chosen = self._unwritten if only is None else self._unwritten.keys() & set(only)
            unwritten = {claim: self._unwritten[claim] for claim in chosen}
            lost: list[Claim] = []
            for _ in range(_ROUNDS_MAX):
                refused = self._put(unwritten) if unwritten else []
                for claim in unwritten.keys() - set(refused):
                    self._unwritten.pop(claim, None)
                unwritten = {claim: unwritten[claim] for claim in refused}
                for claim, known in self._look_each(refused):
                    if known.fence > claim.fence:
                        lost.append(claim)
                    if known.is_later_than(claim.fence, unwritten[claim].at_us):
                        del unwritten[claim], self._unwritten[claim]
                if not unwritten:
                    break
            return lost

    def take_spent(self) -> Mapping[Claim, Sequence[tuple[str, int]]]:
        """Return what jobs really take of their limits, as reported since the last call."""
        if not self._spent:
            return {}
        with self._guard:
            taken, self._spent = self._spent, {}
        return taken

    def forget(self, claims: Collection[Claim]) -> None:
        """Drop unwritten reports of claims that ended or were lost."""
        self._chunks.forget(claims)
        with self._guard:
            for claim in claims:
                self._unwritten.pop(claim, None)
                self._versions.pop(claim, None)

    def close(self) -> None:
        """End the thread that stores partial results."""
        self._chunks.close()

    def last(self, jobs: Sequence[Job]) -> tuple[dict[JobId, Progress], list[Job]]:
        """Read the progress of jobs in earlier claims, and open their records.

        Returns:
            The progress, and the jobs whose claims were lost meanwhile.
        """
        again = {job.claim(): job for job in jobs if job.fence > 1}
        reported: dict[JobId, Progress] = {}
        lost: list[Job] = []
        left: Collection[Claim] = again
        with self._guard:
            for _ in range(_ROUNDS_MAX):
                if not left:
                    return reported, lost
                opening: dict[Claim, Progress | None] = {}
                for claim, known in self._look_each(left):
                    if known.progress is not None:
                        reported[claim.job_id] = known.progress
                    if known.fence > claim.fence:
                        lost.append(again[claim])
                    elif known.fence < claim.fence:
                        opening[claim] = known.progress
                left = self._put(opening) if opening else []
        if left:
            raise Conflict("Other workers write the progress of jobs that this worker claimed.")
        return reported, lost

    def _look_each(self, claims: Collection[Claim]) -> list[tuple[Claim, Known]]:
        """Read the records of claims, and remember their versions."""
        store = self._engine.store
        readings = at_once(
            store, lambda claim: progress_records.look(store, claim.job_id), [*claims]
        )
        looked = list(zip(claims, readings, strict=True))
        self._remember({claim: known.version for claim, known in looked})
        return looked

    def _put(self, records: Mapping[Claim, Progress | None]) -> list[Claim]:
        """Write records in one call; return the claims whose records had changed."""
        version, now_us = self._engine.ids.token(), self._engine.time.latest_us()
        groups = [
            progress_records.written(
                claim.job_id,
                progress,
                fence=claim.fence,
                now_us=now_us,
                expect=self._versions.get(claim, NO_VERSION),
                version=version,
            )
            for claim, progress in records.items()
        ]
        held = dict(zip(records, self._engine.store.together(groups), strict=True))
        self._remember({claim: version for claim, sure in held.items() if sure})
        return [claim for claim, sure in held.items() if not sure]

    def _remember(self, versions: Mapping[Claim, bytes]) -> None:
        """Remember versions; those that are dropped are read again when needed."""
        for claim, version in versions.items():
            self._versions.pop(claim, None)
            self._versions[claim] = version
        while len(self._versions) > _KNOWN_MAX:
            self._versions.pop(next(iter(self._versions)))
