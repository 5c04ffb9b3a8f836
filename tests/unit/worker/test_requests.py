"""Operators steer workers: quiet, resume, stop, ping."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline.coordination import worker_requests
from dueline.coordination.worker_registry import Presence, present
from dueline.coordination.worker_requests import EFFECTIVE_US, RequestKind
from dueline.core.errors import BadInput, NotFound
from dueline.core.wakeup import FALLBACK_US
from dueline.jobs.explain import explain
from dueline.jobs.queue import Queues
from tests.harness.calls import call, put
from tests.harness.clocks import HandClock
from tests.harness.queues import queues_on
from tests.harness.steering import answer_to, ask, presence_of
from tests.harness.worker_bench import Bench
from tests.harness.world import EVERY_KIND, store_on


def act_by_act(bench: Bench, clock: HandClock, acts: Iterator[int]) -> None:
    """Let a worker run; each act yields for how long the worker is left alone after it."""
    until_us, beat_us = [0], [0]

    def meanwhile() -> None:
        bench.worker._attend()
        if clock.monotonic_us() >= beat_us[0]:
            beat_us[0] = clock.monotonic_us() + bench.beat() // 3
        if clock.monotonic_us() >= until_us[0]:
            wait_us = next(acts, None)
            if wait_us is None:
                bench.worker.stop()
            else:
                until_us[0] = clock.monotonic_us() + wait_us

    bench.wakeup.meanwhile = meanwhile
    bench.run()


@pytest.fixture(params=EVERY_KIND)
def queues(request: pytest.FixtureRequest, tmp_path: Path, clock: HandClock) -> Iterator[Queues]:
    store = store_on(request.param, tmp_path, clock)
    yield queues_on(store, clock)
    store.close()


@pytest.mark.slow
def test_an_idle_worker_is_quieted_resumed_and_stopped(queues: Queues, clock: HandClock) -> None:
    """Steer an idle worker that no wake-up reaches."""
    # O13, rule O1
    engine = queues.engine
    bench = Bench(queues, clock, burst=False, gap_us_max=FALLBACK_US)

    def asked(kind: RequestKind) -> Iterator[int]:
        asked_us = clock.wall_us()
        request = ask(engine, kind)
        yield 2 * EFFECTIVE_US
        answer = answer_to(engine, request)
        assert answer is not None
        assert answer.at_us - asked_us <= EFFECTIVE_US
        assert answer.is_quiet is presence_of(engine).is_quiet is (kind == "quiet")

    def acts() -> Iterator[int]:
        yield 60_000_000  # then it polls rarely
        yield from asked("ping")
        yield from asked("quiet")
        (job,) = put(queues, call(1))
        yield 2 * EFFECTIVE_US
        bench.run_all()
        assert bench.runner.began == []
        assert "quiet" in explain(queues, job.id).sentence
        yield from asked("resume")
        bench.run_all()
        assert bench.runner.began == [1]
        yield 60_000_000
        ask(engine, "stop")
        yield EFFECTIVE_US
        raise AssertionError("it did not stop")

    act_by_act(bench, clock, acts())
    assert bench.worker.is_stopped_by_request


def test_a_busy_worker_answers_and_then_takes_nothing_more(
    queues: Queues, clock: HandClock
) -> None:
    """Ping and quiet a worker whose only slot is taken, and which does not poll."""
    engine = queues.engine
    put(queues, call(1), call(2))
    bench = Bench(queues, clock, threads=1, burst=False, gap_us_max=FALLBACK_US)

    def acts() -> Iterator[int]:
        bench.runner.begin()
        yield 10_000_000  # the other job is released meanwhile
        request = ask(engine, "ping")
        yield EFFECTIVE_US
        answer = answer_to(engine, request)
        assert answer is not None
        assert (answer.running, answer.jobs[0][1], answer.is_quiet) == (1, "tests.task", False)
        assert answer.memory_bytes > 1_000_000
        ask(engine, "quiet")
        yield EFFECTIVE_US
        bench.runner.end()
        yield EFFECTIVE_US
        bench.run_all()
        assert (bench.runner.began, presence_of(engine).held) == ([1], 0)

    act_by_act(bench, clock, acts())


@pytest.mark.slow
def test_the_inbox_is_read_once_for_each_request_while_the_worker_is_idle(
    queues: Queues, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # O3: no read of its own
    bench = Bench(queues, clock, burst=False, gap_us_max=FALLBACK_US)
    reads = list[str]()
    store = queues.engine.store
    read = store.read

    def count(partition: str, **terms: object) -> object:
        if partition.startswith("cancels-at/"):
            reads.append(partition)
        return read(partition, **terms)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "read", count)

    def acts() -> Iterator[int]:
        yield 120_000_000
        assert reads == []
        ask(queues.engine, "ping")
        yield 120_000_000
        assert len(reads) == 1

    act_by_act(bench, clock, acts())


def test_a_quiet_worker_lets_jobs_of_cancel_requests_be(queues: Queues, clock: HandClock) -> None:
    """Both are in one inbox; each is read as what it is."""
    put(queues, call(1))
    bench = Bench(queues, clock, burst=False)

    def acts() -> Iterator[int]:
        bench.runner.begin()
        (job,) = bench.runner.active
        queues.cancel(job.id)
        ask(queues.engine, "quiet")
        yield 5_000_000
        assert bench.runner.cancelled == [job.claim()]
        assert presence_of(queues.engine).is_quiet
        bench.runner.end()

    act_by_act(bench, clock, acts())


def test_a_program_that_claims_by_hand_is_not_asked(queues: Queues) -> None:
    client = Presence("client", ("default",), (), 0, 0, 0, 0, 0)
    with pytest.raises(BadInput, match="claims by hand"):
        worker_requests.send(queues.engine, "stop", [client])
    assert worker_requests.chosen([client], None) == []


def test_a_worker_is_chosen_by_the_first_letters_of_its_id(
    queues: Queues, clock: HandClock
) -> None:
    Bench(queues, clock).beat()
    workers = present(queues.engine.store)
    assert (
        worker_requests.chosen(workers, None) == worker_requests.chosen(workers, "ben") == workers
    )
    with pytest.raises(NotFound):
        worker_requests.chosen(workers, "x")
    with pytest.raises(BadInput, match="Several"):
        worker_requests.chosen([*workers, *workers], "ben")
