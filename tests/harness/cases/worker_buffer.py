"""How long a claimed job waits behind others in one worker."""

from collections.abc import Callable

from dueline.core.claim_buffer import WAIT_US_MAX
from dueline.core.job import Job, State
from dueline.jobs.queue import Queues
from dueline.worker.buffer import CHECK_EVERY_US
from dueline.worker.worker import WATCH_US
from tests.harness.calls import call, put, row_in
from tests.harness.clocks import HandClock
from tests.harness.worker_bench import Bench, words

QUICK_US = 1_000


JOBS = 40


class Slow:
    """A worker that takes jobs to be quick, and whose first jobs are slow.

    held: how many jobs it held each time that it waited. released_us: when it held no more than
    it ran. then: called then.
    """

    def __init__(
        self, queues: Queues, clock: HandClock, *, lasts_us: int, threads: int = 1
    ) -> None:
        self.bench = Bench(queues, clock, threads=threads)
        self.bench.runner.run_us = QUICK_US
        self.bench.wakeup.meanwhile = self._go_on
        self.held: list[int] = []
        self.released_us: int | None = None
        self.then: Callable[[], object] = lambda: None
        self._clock = clock
        self._end_us = clock.monotonic_us() + lasts_us

    def _go_on(self) -> None:
        self.bench.runner.begin()
        self.held.append(len(self.bench.worker._held))
        if self.released_us is None and self.held[-1] <= self.bench.runner.threads:
            self.released_us = self._clock.monotonic_us()
            self.then()
        if self._clock.monotonic_us() >= self._end_us:
            self.bench.runner.end()
            self.bench.wakeup.set()


def what_waits_behind_a_slow_job_is_released_in_time(queues: Queues, clock: HandClock) -> None:
    # rule H1
    jobs = put(queues, *(call(number) for number in range(JOBS)))
    slow = Slow(queues, clock, lasts_us=8_000_000)
    began_us = clock.monotonic_us()
    rows: list[Job] = []
    slow.then = lambda: rows.extend(row_in(queues.engine.store, job.id) for job in jobs[1:])
    assert slow.bench.run() == list(range(JOBS))
    assert slow.held[0] == JOBS
    assert slow.released_us is not None
    assert slow.released_us - began_us <= WAIT_US_MAX + CHECK_EVERY_US + WATCH_US
    assert {(row.state, row.errors, row.crashes, row.alone) for row in rows} == {
        (State.WAITING, 0, 0, False)
    }
    assert [row.at_us for row in rows] == [row.pos_us for row in rows]  # each in its own place
    # Until the slow one had ended nothing was claimed again, and each was released once.
    first = slow.held.index(1)
    assert set(slow.held[first : first + 100]) == {1}
    assert (words(queues).count("given_back"), words(queues).count("done")) == (JOBS - 1, JOBS)
