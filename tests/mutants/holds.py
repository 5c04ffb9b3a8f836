"""Rules of what a worker holds, broken."""

from collections.abc import Mapping

import pytest

from dueline.core.job import Claim, JobId
from dueline.core.store import Group
from dueline.jobs import progress_records
from dueline.limits.rate_meters import RateMeters
from dueline.tasks.progress import Progress
from dueline.worker.buffer import Buffer
from dueline.worker.context_controls import Controls
from dueline.worker.progress_reports import ProgressReports

Patch = pytest.MonkeyPatch


def what_waits_behind_a_slow_job_is_kept(patch: Patch) -> None:
    patch.setattr(Buffer, "take_overdue", lambda *_: [])


def what_was_released_is_claimed_again_at_once(patch: Patch) -> None:
    take_overdue = Buffer.take_overdue

    def forget(self: Buffer, now_us: int) -> list[object]:
        taken: list[object] = [*take_overdue(self, now_us)]
        self.ended()
        return taken

    patch.setattr(Buffer, "take_overdue", forget)


def claims_last_for_ever(patch: Patch) -> None:
    patch.setattr(Controls, "has_expired", lambda *_: False)


def progress_is_written_over_a_later_claims(patch: Patch) -> None:
    written = progress_records.written

    def anyhow(job_id: JobId, progress: Progress | None, **terms: object) -> Group:
        group = written(job_id, progress, **terms)  # type: ignore[arg-type]
        (commit,) = group.commits
        writes = tuple(put._replace(expect=None) for put in commit.writes)
        return Group(commits=(commit._replace(writes=writes),))

    patch.setattr(progress_records, "written", anyhow)


def a_later_claim_does_not_open_the_progress(patch: Patch) -> None:
    put = ProgressReports._put

    def but_opening(self: ProgressReports, some: Mapping[Claim, Progress | None]) -> list[Claim]:
        return [] if some.keys() - self._unwritten.keys() else put(self, some)

    patch.setattr(ProgressReports, "_put", but_opening)


def a_late_start_counts_as_of_its_claim(patch: Patch) -> None:
    patch.setattr(RateMeters, "started", lambda *_: None)
