"""Claims are flushed before anybody is told of them."""

from collections.abc import Sequence

import pytest

from dueline.core.clock import SECOND_US
from dueline.core.errors import StoreUnavailable
from dueline.core.job import JobId
from dueline.jobs.queue import Queues
from tests.harness.calls import call, put
from tests.harness.clocks import HandClock
from tests.harness.worker_bench import Bench


class Flushes:
    """Notes what was given to the runner before each flush; the first ones fail."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch, *, failing: int = 0) -> None:
        """Stand in for the store's flush, or give it one."""
        self.given: list[Sequence[JobId]] = []
        self._bench = bench
        self._failing = failing
        monkeypatch.setattr(bench.queues.engine.store, "flush", self._flush, raising=False)

    def _flush(self) -> None:
        self.given.append([assignment.job.id for assignment in self._bench.runner.submitted])
        if len(self.given) <= self._failing:
            raise StoreUnavailable("The disk stands still.", hint="Wait.")


def has_run_hooks(bench: Bench) -> None:
    bench.worker._settler._hooks.on("before_run")(lambda _: None)


def test_a_job_starts_only_when_the_claim_is_flushed_of_which_a_hook_is_told(  # rule P8
    queues: Queues, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(queues, call(0), call(1))
    bench = Bench(queues, clock)
    has_run_hooks(bench)
    flushes = Flushes(bench, monkeypatch, failing=2)
    assert bench.run() == [0, 1]
    assert flushes.given == [[], [], []]


def test_a_job_that_is_claimed_ahead_is_flushed_before_its_time(
    queues: Queues, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(queues, call(0, due_us=queues.engine.time.latest_us() + SECOND_US))
    bench = Bench(queues, clock, burst=False)
    has_run_hooks(bench)
    flushes = Flushes(bench, monkeypatch)
    flushed_us: list[int] = []
    began_us: list[int] = []

    def look() -> None:
        if flushes.given and not flushed_us:
            flushed_us.append(clock.monotonic_us())
        bench.run_all()
        if bench.runner.began:
            began_us.append(clock.monotonic_us())
            bench.worker.stop()

    bench.wakeup.meanwhile = look
    assert bench.run() == [0]
    assert flushes.given == [[]]
    assert flushed_us <= began_us


def test_a_job_of_which_nobody_is_told_starts_without_a_flush(
    queues: Queues, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(queues, call(0))
    bench = Bench(queues, clock)
    flushes = Flushes(bench, monkeypatch)
    assert bench.run() == [0]
    assert flushes.given == []
