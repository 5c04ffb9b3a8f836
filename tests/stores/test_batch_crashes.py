"""Batches whose producer or worker is stopped, paused or unanswered at any call of the store."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from dueline.api import batch_map
from dueline.api.batch_views import BatchCounts
from dueline.batches import ends
from dueline.core.clock import DAY_US
from dueline.core.errors import StoreUnavailable
from dueline.testing.bench import Drained, _Engine
from tests.harness.addresses import world_of
from tests.harness.batch_stage import ITEMS, Stage
from tests.harness.durable_stage import HOWS, KINDS, DisturbedStore
from tests.harness.lives import Stopped
from tests.harness.quiet_log import quiet_log

CALLS_MAX = 200
EVERYTHING = BatchCounts(items=ITEMS, done=ITEMS)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Name a kind of store; slices hold two items, and records are joined early."""
    monkeypatch.setattr(batch_map, "SLICE_ITEMS", 2)
    monkeypatch.setattr(ends, "RECORDS_MAX", 2)
    with quiet_log():
        yield str(request.param)


@contextmanager
def stage_of(kind: str, folder: Path) -> Iterator[Stage]:
    """Make a stage."""
    with world_of(kind, folder) as world:
        yield Stage(world.store, world.clock)


def stages(kind: str, tmp_path: Path) -> Iterator[tuple[int, Stage]]:
    """Yield a new stage for each call that is disturbed, until one is the last."""
    stride = 1 if kind in ("memory", "steps") else 3
    for number in count(1, stride):
        folder = tmp_path / str(number)
        folder.mkdir()
        with stage_of(kind, folder) as stage:
            yield number, stage
        if stage.is_last:
            return


def expect_all_once(stage: Stage, *, keyed: bool) -> None:
    """Map the items again, run everything, and compare."""
    batch = stage.map(stage.store, keyed=keyed)
    stage.drain()
    assert batch.counts() == EVERYTHING
    assert list(batch.results(0)) == list(range(ITEMS))
    assert stage.calls == dict.fromkeys(range(ITEMS), 1)


@pytest.mark.slow
@pytest.mark.parametrize("keyed", [False, True], ids=["positions", "keys"])
@pytest.mark.parametrize("how", HOWS)
def test_a_producer_is_disturbed_at_each_call(
    kind: str, tmp_path: Path, how: str, *, keyed: bool
) -> None:
    """Disturb the producer, run what is there, and repeat: each item is one job."""
    for number, stage in stages(kind, tmp_path):
        meanwhile = partial(stage.meanwhile, keyed=keyed, works=how == "pause")
        store = DisturbedStore(stage.store, number, how, meanwhile)
        with suppress(Stopped, StoreUnavailable):
            stage.map(store, keyed=keyed)
        stage.work(stage.store)
        expect_all_once(stage, keyed=keyed)
        stage.is_last = store.calls < number
        assert number < CALLS_MAX


@pytest.mark.parametrize("how", ["stop", "lost"])
def test_a_producer_is_repeated_days_later(kind: str, tmp_path: Path, how: str) -> None:
    """Let results and the time of safe repeats pass before the repeat."""
    if kind == "cassandra":
        pytest.skip("a server deletes by its own time")
    for number, stage in stages(kind, tmp_path):
        store = DisturbedStore(stage.store, number, how, lambda: None)
        with suppress(Stopped, StoreUnavailable):
            stage.map(store, keyed=False)
        stage.drain()
        stage.clock.sleep(3 * DAY_US / 1_000_000)
        batch = stage.map(stage.store, keyed=False)
        stage.drain()
        assert batch.counts() == EVERYTHING
        assert stage.calls == dict.fromkeys(range(ITEMS), 1)
        stage.is_last = store.calls < number
        assert number < CALLS_MAX


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
def test_a_worker_is_disturbed_at_each_call(kind: str, tmp_path: Path, how: str) -> None:
    """Disturb the worker: each job has one end, and counts are exact."""
    for number, stage in stages(kind, tmp_path):
        batch = stage.map(stage.store, keyed=False)
        store = DisturbedStore(stage.store, number, how, partial(stage.work, stage.store))
        with suppress(Stopped, StoreUnavailable):
            stage.work(store)
        stage.drain()
        assert batch.counts() == EVERYTHING
        assert list(batch.results(0)) == list(range(ITEMS))
        stage.is_last = store.calls < number
        assert number < CALLS_MAX


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
def test_a_reader_is_disturbed_while_it_joins_records(kind: str, tmp_path: Path, how: str) -> None:
    """Disturb a process that counts, while others run the jobs."""
    for number, stage in stages(kind, tmp_path):
        stage.map(stage.store, keyed=False)
        store = DisturbedStore(stage.store, number, how, partial(stage.work, stage.store))
        reader = stage.process(store).batch
        for _ in range(ITEMS):
            engine = _Engine(stage.process(stage.store))
            engine.step(Drained(), raises=False)
            with suppress(Stopped, StoreUnavailable):
                reader("b").counts()
        stage.drain()
        assert stage.process(stage.store).batch("b").counts() == EVERYTHING
        stage.is_last = store.calls < number
        assert number < CALLS_MAX
