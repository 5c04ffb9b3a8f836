"""Progress is fenced: a lost claim never replaces what its successor reported."""

from dueline.core.job import Claim, Job
from dueline.jobs import progress_records
from dueline.jobs.queue import Queues
from dueline.tasks.progress import ProgressReport
from dueline.worker.progress_reports import ProgressReports
from tests.harness.calls import LEASE_US, call, claim_all, put
from tests.harness.clocks import HandClock


class Holder:
    """A worker's part in the progress of one job, under one claim."""

    def __init__(self, queues: Queues, job: Job) -> None:
        self.job = job
        self.said: dict[Claim, ProgressReport] = {}
        self.reports = ProgressReports(queues.engine, self._take)

    def _take(self) -> dict[Claim, ProgressReport]:
        said, self.said = self.said, {}
        return said

    def begin(self) -> float | None:
        """Do what is done before the handler is called; answer what it is told."""
        found, lost = self.reports.last([self.job])
        assert lost == []
        return found[self.job.id].done if self.job.id in found else None

    def say(self, done: float) -> list[Claim]:
        """ProgressReport, and write it; answer what was lost."""
        self.said = {self.job.claim(): ProgressReport(done, 60, "")}
        return self.reports.write()


def taken_over(queues: Queues, clock: HandClock, *, count: int = 2) -> list[Holder]:
    """Have workers claim a job, one after the lease of the other."""
    put(queues, call(1))
    holders = []
    for number in range(count):
        (job,) = claim_all(queues, worker=f"w{number}")
        holders.append(Holder(queues, job))
        clock.advance(us=LEASE_US)
    return holders


def done(queues: Queues, holder: Holder) -> float | None:
    """Read how far the job has come, as callers do."""
    progress = progress_records.read(queues.engine.store, holder.job.id)
    return None if progress is None else progress.done


def an_old_claim_changes_nothing_once_a_later_one_began(queues: Queues, clock: HandClock) -> None:
    # rule L2
    old, new = taken_over(queues, clock)
    assert old.say(10) == []
    assert new.begin() == 10
    assert old.say(30) == [old.job.claim()]
    assert done(queues, old) == 10
    assert new.say(18) == []
    assert old.say(31) == [old.job.claim()]
    assert done(queues, old) == 18


def nor_where_nothing_was_reported_before(queues: Queues, clock: HandClock) -> None:
    # rule L2
    old, new, newest = taken_over(queues, clock, count=3)
    assert new.begin() is None
    assert done(queues, old) is None  # it was opened, and says nothing
    assert old.say(10) == [old.job.claim()]
    assert newest.begin() is None
    assert new.say(5) == [new.job.claim()]
    assert newest.say(3) == []
    assert done(queues, old) == 3
