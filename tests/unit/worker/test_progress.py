"""Progress is fenced: a lost claim never replaces what its successor reported (C7, C18)."""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dueline.core.codec import encode
from dueline.core.errors import LeaseLost
from dueline.core.job import Claim, Job
from dueline.core.retry import Retry
from dueline.core.store import Group, Put
from dueline.jobs import progress_records
from dueline.jobs.queue import Queues
from dueline.tasks.handler import Context, Handler
from dueline.tasks.progress import Progress, ProgressReport
from dueline.worker.context_controls import Controls
from dueline.worker.progress_reports import ProgressReports
from tests.harness.calls import LEASE_US, call, claim_all, put, row_of
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.programs import Program, wait_for
from tests.harness.worker_bench import Bench
from tests.harness.world import EVERY_KIND, World, store_on


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
        reports, lost = self.reports.last([self.job])
        assert lost == []
        return reports[self.job.id].done if self.job.id in reports else None

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


@pytest.fixture(params=EVERY_KIND)
def queues(request: pytest.FixtureRequest, tmp_path: Path, clock: HandClock) -> Iterator[Queues]:
    world = World(store_on(request.param, tmp_path, clock), clock)
    yield world.queues
    world.store.close()


def test_an_old_claim_changes_nothing_once_a_later_one_began(
    queues: Queues, clock: HandClock
) -> None:
    # rule L2
    old, new = taken_over(queues, clock)
    assert old.say(10) == []
    assert new.begin() == 10
    assert old.say(30) == [old.job.claim()]
    assert done(queues, old) == 10
    assert new.say(18) == []
    assert old.say(31) == [old.job.claim()]
    assert done(queues, old) == 18


def test_nor_where_nothing_was_reported_before(queues: Queues, clock: HandClock) -> None:
    # rule L2
    old, new, newest = taken_over(queues, clock, count=3)
    assert new.begin() is None
    assert done(queues, old) is None  # it was opened, and says nothing
    assert old.say(10) == [old.job.claim()]
    assert newest.begin() is None
    assert new.say(5) == [new.job.claim()]
    assert newest.say(3) == []
    assert done(queues, old) == 3


def test_what_is_written_while_the_record_is_opened_is_told(
    queues: Queues, clock: HandClock
) -> None:
    old, new = taken_over(queues, clock)
    old.say(10)
    together = queues.engine.store.together

    def late(groups: Sequence[Group]) -> Sequence[bool]:
        queues.engine.store.together = together  # type: ignore[method-assign]
        assert old.say(15) == []
        return together(groups)

    queues.engine.store.together = late  # type: ignore[method-assign]
    assert new.begin() == 15
    assert old.say(16) == [old.job.claim()]


def test_a_claim_that_was_lost_before_it_began_is_told_so(queues: Queues, clock: HandClock) -> None:
    _, middle, newest = taken_over(queues, clock, count=3)
    newest.begin()
    assert middle.reports.last([middle.job]) == ({}, [middle.job])


def test_a_worker_whose_claim_was_lost_tells_its_handler(queues: Queues, clock: HandClock) -> None:
    # rule L2
    (job,) = put(queues, call(1))
    bench = Bench(queues, clock)

    def lose() -> None:
        bench.runner.begin()
        if len(bench.wakeup.waits_s) == 1:
            (active,) = bench.runner.active
            clock.advance(us=LEASE_US)
            (taken,) = claim_all(queues, worker="other")
            Holder(queues, taken).begin()
            bench.runner.told = {active.claim(): ProgressReport(1, 10, "stale")}
            bench.worker._attend()
            assert bench.runner.forgotten == [active.claim()]
        bench.runner.end()

    bench.wakeup.meanwhile = lose
    bench.run()
    assert progress_records.read(queues.engine.store, job.id) is None


def test_progress_raises_once_the_claim_is_known_to_be_lost() -> None:
    job, controls = row_of(1)._replace(fence=1), Controls()
    handler = Handler(len, name="t", retry=Retry(), timeout_us=None)
    context = Context(job, controls, handler)
    context.progress(1, 2)
    controls.lose([job.claim()])
    with pytest.raises(LeaseLost, match="was lost"):
        context.progress(2, 2)
    assert [report.done for report in controls.take_reports().values()] == [1]


def test_a_report_of_an_older_version_is_read_and_goes_on(queues: Queues, clock: HandClock) -> None:
    old, new = taken_over(queues, clock)
    value = encode(Progress(7, 60, "", NOW_US))
    queues.engine.store.commit(f"progress/{old.job.id.hex()}", (Put("last", b"v" * 16, value),))
    assert done(queues, old) == 7
    assert new.begin() == 7
    assert new.say(8) == []
    assert done(queues, old) == 8


PROGRAM = """
import os, time
from dueline import Context; from dueline import Dueline

app = Dueline(URL)
app.queue("q", lease=1.5)

def put(part, fence):  # an outside system that refuses an older fence
    top = int(open("fence").read() or 0) if os.path.exists("fence") else 0
    if fence >= top:
        with open("fence", "w") as file:
            file.write(str(fence))
        with open("parts", "a") as file:
            file.write(f"{part}\\n")

@app.task(name="copy", queue="q")
def copy(ctx: Context) -> None:
    start = int(ctx.last_progress.done) if ctx.last_progress else 0
    with open("starts", "a") as file:
        file.write(f"{ctx.fence} {start}\\n")
    for part in range(start, 60):
        put(part, ctx.fence)
        ctx.progress(part + 1, 60)
        time.sleep(0.05)
"""


@pytest.mark.long
@pytest.mark.sqlite
def test_nothing_is_skipped_when_a_worker_wakes_after_another_died(tmp_path: Path) -> None:
    # rule L2: the first stands still, the second takes over and dies, the third goes on
    program = Program(tmp_path, PROGRAM)
    log = tmp_path / "starts"
    try:
        job = program.module.copy.enqueue()
        first = program.work("-q", "q", "-c", "1", "--no-monitor")
        wait_for(lambda: job.progress and job.progress.done >= 8, "the first has begun")
        program.stop(first)
        second = program.work("-q", "q", "-c", "1", "--no-monitor")
        wait_for(lambda: len(log.read_text(encoding="utf-8").splitlines()) == 2, "a take-over")
        time.sleep(0.4)
        os.kill(second.pid, signal.SIGKILL)
        program.go_on(first)
        program.work("-q", "q", "-c", "1", "--no-monitor")
        wait_for(lambda: job.status == "done", "the third has ended it")
        parts = {int(part) for part in (tmp_path / "parts").read_text().split()}
        assert parts == set(range(60)), log.read_text(encoding="utf-8")
    finally:
        program.close()


@pytest.mark.long
@pytest.mark.sqlite
def test_the_progress_of_a_job_that_is_done_stays_where_it_was(tmp_path: Path) -> None:
    # rule L2: the first worker wakes when the second has ended the job
    program = Program(tmp_path, PROGRAM)
    try:
        job = program.module.copy.enqueue()
        first = program.work("-q", "q", "-c", "1")
        wait_for(lambda: job.progress and job.progress.done >= 8, "the first has begun")
        program.stop(first)
        second = program.work("-q", "q", "-c", "1")
        wait_for(lambda: job.status == "done", "the second has ended it")
        second.terminate()  # it writes what is left to write
        second.wait(60)
        seen = {job.progress.done}
        program.go_on(first)
        for _ in range(20):
            time.sleep(0.1)
            seen.add(job.progress.done)
        assert seen == {60}
    finally:
        program.close()


def test_nothing_is_remembered_of_a_claim_that_ended(queues: Queues, clock: HandClock) -> None:
    (holder,) = taken_over(queues, clock, count=1)
    holder.begin()
    assert holder.say(1) == []
    with holder.reports._guard:
        holder.reports._unwritten[holder.job.claim()] = Progress(2, 60, "", NOW_US)
        assert holder.reports._versions
    holder.reports.forget([holder.job.claim()])
    with holder.reports._guard:
        assert (holder.reports._unwritten, holder.reports._versions) == ({}, {})
