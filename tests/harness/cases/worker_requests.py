"""Operators steer workers: quiet, resume, stop, ping (rule O1)."""

import time
from collections.abc import Callable, Iterator

from dueline import Dueline
from dueline.coordination import worker_requests
from dueline.coordination.worker_registry import Presence, present
from dueline.coordination.worker_requests import EFFECTIVE_US, RequestKind, WorkerAnswer
from dueline.core.engine import Engine
from dueline.core.wakeup import FALLBACK_US
from dueline.jobs.explain import explain
from dueline.jobs.queue import Queues
from tests.harness.calls import call, put
from tests.harness.clocks import HandClock
from tests.harness.worker_bench import Bench


def ask(engine: Engine, kind: RequestKind) -> str:
    """Send a request to the only worker."""
    return worker_requests.send(engine, kind, present(engine.store))


def answer_to(engine: Engine, request: str) -> WorkerAnswer | None:
    """Read what the only worker answered to a request."""
    found = list(worker_requests.answers(engine.store).values())
    return found[0] if found and found[0].request == request else None


def presence_of(engine: Engine) -> Presence:
    """Read what the only worker reports."""
    (one,) = present(engine.store)
    return one


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


def an_idle_worker_is_quieted_resumed_and_stopped(queues: Queues, clock: HandClock) -> None:
    """Steer an idle worker that no wake-up reaches."""
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


def a_busy_worker_answers_and_then_takes_nothing_more(queues: Queues, clock: HandClock) -> None:
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


def a_worker_is_steered(url: str) -> None:
    """Steer a worker on a real store in real time."""
    app = Dueline(url)

    @app.task(name="work")
    def work() -> str:
        return "done"

    with app.worker(["default"]):
        engine = app.engine
        assert in_time(lambda: present(engine.store))
        quiet = ask(engine, "quiet")
        assert in_time(lambda: answer_to(engine, quiet))
        job = work.enqueue()
        ping = ask(engine, "ping")
        assert in_time(lambda: answer_to(engine, ping))
        assert in_time(lambda: presence_of(engine).is_quiet)
        assert job.explain().reason == "quiet"
        ask(engine, "resume")
        assert job.result(timeout=10) == "done"
        ask(engine, "stop")
        assert in_time(lambda: not present(engine.store))
    app.close()


def in_time(is_so: Callable[[], object]) -> bool:
    """Wait for something, as long as an operator does at most."""
    until_s = time.monotonic() + EFFECTIVE_US / 1e6
    while not (found := is_so()) and time.monotonic() < until_s:
        time.sleep(0.01)
    return bool(found)
