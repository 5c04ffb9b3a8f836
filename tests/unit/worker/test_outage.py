"""A worker and a consumer whose store is away for ten minutes."""

from pathlib import Path

import pytest

from dueline.core.errors import Conflict, DuelineError, StoreUnavailable
from dueline.core.store import Store
from dueline.jobs.queue import Queues
from tests.harness.calls import call
from tests.harness.clocks import HandClock
from tests.harness.queues import queues_on
from tests.harness.stream_stage import Stage, values
from tests.harness.worker_bench import Bench
from tests.harness.world import EVERY_KIND, store_on

pytestmark = pytest.mark.no_cover  # long, and what it runs is measured by others

AWAY_S = 600


class Away:
    """A store that fails all calls up to an instant of the machine's own clock."""

    def __init__(
        self, store: Store, clock: HandClock, error: type[DuelineError] = StoreUnavailable
    ) -> None:
        """Take the store that is behind it, and how calls fail."""
        self._error = error
        self.until_us = 0
        self.failed = 0
        self._store = store
        self._clock = clock

    def __getattr__(self, name: str) -> object:
        attribute = getattr(self._store, name)
        if not callable(attribute):
            return attribute

        def call(*args: object, **kwargs: object) -> object:
            if self._clock.monotonic_us() < self.until_us:
                self.failed += 1
                raise self._error(f"{name}: the store is away")
            return attribute(*args, **kwargs)

        return call


@pytest.fixture(params=EVERY_KIND)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: HandClock) -> Store:
    """Open an empty store."""
    return store_on(request.param, tmp_path, clock)


def engine(store: object, clock: HandClock) -> Queues:
    """Make an engine."""
    return queues_on(store, clock)  # type: ignore[arg-type]


@pytest.mark.long
@pytest.mark.parametrize("error", [StoreUnavailable, Conflict])
def test_a_worker_runs_what_is_due_within_five_seconds(
    store: Store, clock: HandClock, error: type[DuelineError]
) -> None:
    # R8; a conflict is what "keeps changing", and does not stop a worker either
    away, producer = Away(store, clock, error), engine(store, clock)
    bench = Bench(engine(away, clock), clock, burst=False)
    producer.enqueue(call(1))
    began_us: list[int] = []

    def meanwhile() -> None:
        bench.run_all()
        if len(bench.runner.began) == 1 and not away.until_us:
            away.until_us = clock.monotonic_us() + AWAY_S * 1_000_000
            producer.enqueue(call(2))
        if len(bench.runner.began) == 2:
            began_us.append(clock.monotonic_us())
            bench.worker.stop()

    bench.wakeup.meanwhile = meanwhile
    assert bench.run() == [1, 2]
    assert away.failed > 100
    assert 0 < began_us[0] - away.until_us < 5_000_000


def test_a_consumer_reads_on_within_five_seconds(store: Store, clock: HandClock) -> None:
    # R8; its beats come every 15 seconds, as with a lease of a minute
    away = Away(store, clock)
    there, cut_off = Stage(store, clock), Stage(away, clock)  # type: ignore[arg-type]
    orders = there.stream(2)
    orders.append(1)
    member = cut_off.member(shards=2)
    member.balance()
    there.later()
    assert values(member) == [1]
    away.until_us = clock.monotonic_us() + AWAY_S * 1_000_000
    orders.append(2)
    while clock.monotonic_us() < away.until_us:
        with pytest.raises(StoreUnavailable):
            member.balance()
        clock.advance(7.3)
    assert member.held == []
    end_us = clock.monotonic_us() + 5_000_000
    handled: list[object] = []
    while not handled and clock.monotonic_us() < end_us:
        if member.is_unsettled():  # nobody waits for a beat
            member.balance()
        handled += values(member)
        clock.advance(0.1)
    assert handled == [2]
