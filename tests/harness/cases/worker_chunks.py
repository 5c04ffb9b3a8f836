"""Jobs that are gathered, in time that the test moves."""

from dueline.core.attempt import Done, Each, Ending, GivenBack
from dueline.core.clock import SECOND_US
from dueline.core.job import Job
from dueline.core.retry import Retry
from dueline.jobs.queue import Queues
from dueline.tasks.batch_handler import BatchHandler, Call
from dueline.tasks.batch_options import BatchOptions
from dueline.worker.assignment import Assignment
from tests.harness.calls import call, claim_all, numbers, put
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.worker_bench import Bench, words

TASK = "tests.chunked"


WITHIN_US = 2 * SECOND_US


def take(calls: list[Call[int]]) -> None:
    del calls


def bench_of(queues: Queues, clock: HandClock, *, size: int = 3, **terms) -> Bench:  # type: ignore[no-untyped-def]  # noqa: ANN003
    batch = BatchOptions(size=size, within=WITHIN_US / SECOND_US, by=terms.pop("by", ""))
    handler = BatchHandler(take, batch=batch, name=TASK, retry=Retry(), timeout_us=None)
    return Bench(queues, clock, batch_handlers=handler, **terms)


def chunks(bench: Bench) -> list[list[int]]:
    """List the numbers of what was submitted together."""
    return [
        numbers([member.job for member in one.chunk or [one]]) for one in bench.runner.submitted
    ]


def put_chunked(queues: Queues, *some: int, **terms) -> list[Job]:  # type: ignore[no-untyped-def]  # noqa: ANN003
    return put(queues, *(call(n, task=TASK, **terms) for n in some))


def members(bench: Bench, place: int = 0) -> Assignment:
    return bench.runner.submitted[place]


def a_full_chunk_runs_at_once_and_the_rest_after_its_time(queues: Queues, clock: HandClock) -> None:
    put_chunked(queues, *range(8))
    bench = bench_of(queues, clock)
    at_us: list[int] = []

    def note_and_run() -> None:
        at_us.extend([clock.wall_us()] * (len(bench.runner.submitted) - len(at_us)))
        bench.run_all()

    bench.wakeup.meanwhile = note_and_run
    bench.run()
    assert chunks(bench) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert at_us == [NOW_US, NOW_US, NOW_US + WITHIN_US]
    assert words(queues) == ["done"] * 8
    assert claim_all(queues) == []


def each_job_of_a_chunk_ends_in_its_own_way(queues: Queues, clock: HandClock) -> None:
    jobs = put_chunked(queues, 1, 2, 3)
    bench = bench_of(queues, clock, burst=False)

    def run_once() -> None:
        bench.runner.begin()
        if bench.runner.active:
            claims = [one.job.claim() for one in members(bench).chunk]
            endings: list[Ending] = [Done(b"1"), GivenBack(SECOND_US), Done(b"3")]
            bench.runner.end(Each(list(zip(claims, endings, strict=True))))
            bench.worker.stop()

    bench.wakeup.meanwhile = run_once
    bench.run()
    assert [queues.find(job.id).status for job in jobs] == ["done", "scheduled", "done"]
