"""What a worker does not run: what expired, and what may have run already."""

from dueline.core.job import Job
from dueline.core.store import Extend
from dueline.jobs.queue import Queues
from tests.harness.calls import LEASE_US, call, claim_all, put
from tests.harness.clocks import HandClock
from tests.harness.worker_bench import Bench, words


def a_job_whose_worker_died_after_its_start_is_lost(once: Queues, clock: HandClock) -> None:
    # C8
    started, _ = put(once, call(1), call(2))
    claimed = claim_all(once)
    mark(once, claimed[0])
    clock.advance(us=LEASE_US + 1)
    assert Bench(once, clock).run() == [2]
    assert sorted(words(once)) == ["crashed", "done", "lost"]
    outcome = once.find(started.id).outcome
    assert outcome is not None
    assert outcome.state == "lost"
    assert "may have run" in outcome.error


def mark(queues: Queues, job: Job) -> None:
    """Mark a job as started, as a worker does before it calls the handler."""
    assert queues.engine.store.settle([Extend(job, job.at_us, started=True)])[0]
