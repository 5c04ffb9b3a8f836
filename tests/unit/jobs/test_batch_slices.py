"""Slices that a process has left behind, on a store without transactions."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from dueline import Dueline, Retry
from dueline.api.batch_map import new_batch, opened
from dueline.batches.records import Head, head_of, named
from dueline.core.codec import JSON
from dueline.core.job import Job
from dueline.core.store import Group
from dueline.jobs.batch_slices import current_head, store_slice
from dueline.jobs.queue import EnqueueRequest
from dueline.stores.memory.store import MemoryStore
from tests.harness.addresses import world_of
from tests.harness.batch_stage import ITEMS, Stage
from tests.harness.clocks import HandClock
from tests.harness.durable_stage import DisturbedStore
from tests.harness.lives import Stopped
from tests.harness.quiet_log import quiet_log


class AddsNoted(DisturbedStore):
    """A store that notes the jobs that are inserted."""

    added: list[Job]

    def __init__(self, *args: Any) -> None:  # noqa: ANN401  (as it takes)
        super().__init__(*args)
        self.added = []

    def together(self, groups: Sequence[Group]) -> Sequence[bool]:
        self.added += [job for group in groups for job in group.jobs]
        return super().together(groups)


class KeysOnly(DisturbedStore):
    """A store whose process is killed after it has stored keys, before it has stored jobs."""

    def together(self, groups: Sequence[Group]) -> Sequence[bool]:
        if any(group.jobs for group in groups):
            super().together([Group(commits=group.commits) for group in groups])
            raise Stopped
        return super().together(groups)


def map_keys_only(stage: Stage) -> None:
    """Map the items in a process that is killed between keys and jobs."""
    with suppress(Stopped):
        stage.map(KeysOnly(stage.store, 0, "stop", lambda: None), keyed=True)


def inserted(number: int) -> tuple[int, int] | None:
    """Stop a producer before a call, run the jobs, and complete the slice.

    Returns: how many jobs were inserted, and how many had not run; None if no slice was left.
    """
    with world_of("steps", Path()) as world:
        stage = Stage(world.store, world.clock)
        store = DisturbedStore(world.store, number, "stop", lambda: None)
        with suppress(Stopped):
            stage.map(store, keyed=False)
        stage.drain()
        batch = named(world.store, "b")
        head = Head() if batch is None else head_of(world.store, batch.id)
        if batch is None or not head.rows:
            return None
        watched = AddsNoted(world.store, 0, "stop", lambda: None)
        app = stage.process(watched)
        assert current_head(app.queues.engine, batch).items == ITEMS
        return len(watched.added), ITEMS - len(stage.calls)


@quiet_log()
def test_only_what_is_missing_is_inserted() -> None:
    left = [inserted(number) for number in range(1, 30)]
    answers = {answer for answer in left if answer is not None}
    assert answers == {(0, 0), (ITEMS, ITEMS)}


def test_one_slice_is_stored() -> None:
    stage = Stage(MemoryStore(clock := HandClock()), clock)
    app = stage.process(stage.store)
    queues = app.queues
    batch = opened(queues.engine, new_batch(queues.engine, "b", "note", "default", has_keys=False))
    read = current_head(queues.engine, batch)
    calls = EnqueueRequest("default", "note", JSON, [b"[0]", b"[1]"])
    stored = store_slice(queues, batch, read, calls, check=0, keys=b"")
    assert stored is not None
    assert store_slice(queues, batch, read, calls, check=0, keys=b"") is None
    assert current_head(queues.engine, batch) == stored[0]


@quiet_log()
def test_only_whole_slices_count() -> None:
    for number in range(1, 12):
        with world_of("steps", Path()) as world:
            stage = Stage(world.store, world.clock)
            store = DisturbedStore(world.store, number, "pause", partial(map_keys_only, stage))
            stage.map(store, keyed=True)
            stage.drain()
            assert stage.calls == dict.fromkeys(range(ITEMS), 1)


def test_ends_are_effects() -> None:
    with world_of("steps", Path()) as world:
        stage = Stage(world.store, world.clock)
        batch = stage.map(world.store, keyed=False)
        stage.drain()
        assert batch.counts().done == ITEMS


def test_a_retry_has_not_ended() -> None:
    app = Dueline("memory://")

    @app.task(name="fail", retry=Retry(attempts=1))
    def fail(_: int) -> None:
        raise ValueError

    batch = fail.map([1])
    app.run_worker(burst=True)
    assert batch.counts().dead == 1
    batch.retry_failed()
    assert batch.counts().left == 1
    app.close()
