"""Operators steer workers: quiet, resume, stop, ping."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline.coordination import worker_requests
from dueline.coordination.worker_registry import Presence, present
from dueline.core.errors import BadInput, NotFound
from dueline.core.wakeup import FALLBACK_US
from dueline.jobs.queue import Queues
from tests.harness.calls import call, put
from tests.harness.cases import worker_requests as cases
from tests.harness.clocks import HandClock
from tests.harness.queues import queues_on
from tests.harness.worker_bench import Bench
from tests.harness.world import EVERY_KIND, store_on


@pytest.fixture(params=EVERY_KIND)
def queues(request: pytest.FixtureRequest, tmp_path: Path, clock: HandClock) -> Iterator[Queues]:
    store = store_on(request.param, tmp_path, clock)
    yield queues_on(store, clock)
    store.close()


def test_an_idle_worker_is_quieted_resumed_and_stopped(queues: Queues, clock: HandClock) -> None:
    # O13, rule O1
    cases.an_idle_worker_is_quieted_resumed_and_stopped(queues, clock)


def test_a_busy_worker_answers_and_then_takes_nothing_more(
    queues: Queues, clock: HandClock
) -> None:
    cases.a_busy_worker_answers_and_then_takes_nothing_more(queues, clock)


def test_a_worker_is_steered(tmp_path: Path) -> None:
    cases.a_worker_is_steered(f"sqlite:///{tmp_path}/jobs.db")


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
        cases.ask(queues.engine, "ping")
        yield 120_000_000
        assert len(reads) == 1

    cases.act_by_act(bench, clock, acts())


def test_a_quiet_worker_lets_jobs_of_cancel_requests_be(queues: Queues, clock: HandClock) -> None:
    """Both are in one inbox; each is read as what it is."""
    put(queues, call(1))
    bench = Bench(queues, clock, burst=False)

    def acts() -> Iterator[int]:
        bench.runner.begin()
        (job,) = bench.runner.active
        queues.cancel(job.id)
        cases.ask(queues.engine, "quiet")
        yield 5_000_000
        assert bench.runner.cancelled == [job.claim()]
        assert cases.presence_of(queues.engine).is_quiet
        bench.runner.end()

    cases.act_by_act(bench, clock, acts())


def test_a_worker_of_an_older_version_is_not_asked(queues: Queues) -> None:
    # it would not understand what it reads
    old = Presence("old", ("default",), (), 1, 0, 0, 0, 0)
    with pytest.raises(BadInput, match="older version"):
        worker_requests.send(queues.engine, "stop", [old])


def test_a_worker_is_chosen_by_the_first_letters_of_its_id(
    queues: Queues, clock: HandClock
) -> None:
    Bench(queues, clock).beat()
    some = present(queues.engine.store)
    assert worker_requests.chosen(some, None) == worker_requests.chosen(some, "ben") == some
    with pytest.raises(NotFound):
        worker_requests.chosen(some, "x")
    with pytest.raises(BadInput, match="Several"):
        worker_requests.chosen([*some, *some], "ben")
