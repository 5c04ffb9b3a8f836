"""Cancelling jobs that run, and what they say of their progress."""

from dueline.core.attempt import Done, Ending, Failed
from dueline.core.retry import Retry
from dueline.jobs import cancel_requests, progress_records
from dueline.jobs.queue import Queues
from dueline.tasks.progress import Progress, ProgressReport
from tests.harness.calls import call, put
from tests.harness.clocks import HandClock
from tests.harness.worker_bench import Bench, words

FAILED = Failed("OSError", "no", "", retry=True)


def begun(bench: Bench, clock: HandClock) -> None:
    """Begin handlers, and look as the beat does, a second later."""
    bench.runner.begin()
    clock.advance(1)
    bench.worker._attend()


def a_running_job_whose_end_is_wished_for_runs_no_second_time(
    queues: Queues, clock: HandClock, ending: Ending, state: str
) -> None:
    # C19: it ends as its handler makes it end, but is not tried again
    (job,) = put(queues, call(1))
    bench = Bench(queues, clock)

    def cancel() -> None:
        begun(bench, clock)
        if len(bench.wakeup.waits_s) == 1:
            assert not queues.cancel(job.id)
        elif bench.runner.cancelled:
            assert bench.runner.cancelled == [job._replace(fence=1).claim()]
            bench.runner.end(ending)

    bench.wakeup.meanwhile = cancel
    assert bench.run() == [1]
    assert queues.find(job.id).status == state
    assert words(queues) == [state]
    assert cancel_requests.of_worker(queues.engine.store, "bench:1:0") == {}


def the_last_report_is_written_and_there_for_the_next_attempt(
    queues: Queues, clock: HandClock
) -> None:
    # C18
    (job,) = put(queues, call(1))
    bench = Bench(queues, clock, retry=Retry(base=0, cap=0), takes_context=True)
    lasts: list[Progress | None] = []

    def report() -> None:
        bench.runner.begin()
        if not bench.runner.active:
            return
        (active,) = bench.runner.active
        lasts.append(bench.runner.submitted[-1].last)
        bench.runner.told = {active.claim(): ProgressReport(len(lasts), 10, "half")}
        if len(lasts) == 1:
            bench.worker._attend()
            assert progress_records.read(queues.engine.store, job.id) == Progress(
                1, 10, "half", clock.wall_us()
            )
        bench.runner.end(FAILED if len(lasts) < 3 else Done(b"1"))

    bench.wakeup.meanwhile = report
    assert bench.run() == [1, 1, 1]
    assert [last and last.done for last in lasts] == [None, 1, 2]
    last = progress_records.read(queues.engine.store, job.id)
    assert last is not None
    assert last.done == 3
    clock.advance(us=progress_records.KEEP_US)
    assert progress_records.read(queues.engine.store, job.id) is None


def a_request_just_before_the_end_decides_what_it_is_called(
    queues: Queues, clock: HandClock, ending: Ending
) -> None:
    # C19: the worker reads its requests again before it decides
    (job,) = put(queues, call(1))
    bench = Bench(queues, clock, retry=Retry(base=0, cap=0))

    def cancel() -> None:
        bench.runner.begin()
        if bench.runner.active:
            assert not queues.cancel(job.id)
            bench.runner.end(ending)

    bench.wakeup.meanwhile = cancel
    assert bench.run() == [1]
    outcome = queues.find(job.id).outcome
    assert outcome is not None
    assert outcome.state == "cancelled"
    assert outcome.error.startswith("Cancellation was requested. ")
    assert words(queues) == ["cancelled"]
