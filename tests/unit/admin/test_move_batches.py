"""Batches in a store that moves."""

from itertools import count
from pathlib import Path

import pytest

from dueline.admin.move import Moved, Mover
from dueline.api.batch_map import new_batch, opened
from dueline.batches import ends
from dueline.batches.records import Batch, Head, head_of, named
from dueline.core.attempt import Outcome
from dueline.core.batch_ids import ids_at
from dueline.core.codec import JSON
from dueline.jobs.batch_slices import store_slice
from dueline.jobs.queue import EnqueueRequest
from tests.harness.world import World, clock_for, store_on

PAIRS = [("memory", "memory"), ("sqlite", "steps"), ("steps", "sqlite")]


def store_batch(world: World, many: int) -> Batch:
    """Store a batch."""
    queues = world.queues
    wanted = new_batch(queues.engine, "b", "task", "q", has_keys=False)
    batch = opened(queues.engine, wanted)
    calls = EnqueueRequest("q", "task", JSON, [b"[]"] * many)
    assert store_slice(queues, batch, Head(), calls, check=0, keys=b"")
    return batch


@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
def test_a_batch_moves_with_how_its_jobs_ended(kinds: tuple[str, str], tmp_path: Path) -> None:
    """Let one job end before, one during and one after the move."""
    clock = clock_for(*kinds)
    old, new = (
        World(store_on(kind, folder, clock), clock)
        for kind, folder in zip(kinds, folders(tmp_path), strict=True)
    )
    batch = store_batch(old, 3)
    first, second, third = ids_at(batch.id, range(3))
    old.end(old.claim(first), Outcome("done", old.now_us, value="7"))
    running = old.claim(second)
    passes = count(1)

    def report(text: str, _: Moved) -> None:
        if text == "moving jobs" and next(passes) == 3:
            old.end(running, Outcome("done", old.now_us, value="8"))

    Mover(old.other(), new.other(), ("old", "new"), clock=clock, report=report).run()
    new.end(new.claim(third), Outcome("dead", new.now_us, error="no"))
    moved = named(new.store, "b")
    assert moved is not None
    assert head_of(new.store, moved.id).items == 3
    states = ends.read(new.store, moved.id)[0]
    assert {state: marks for state, marks in states.items() if marks} == {"done": 3, "dead": 4}
    old.store.close()
    new.store.close()


def folders(tmp_path: Path) -> list[Path]:
    """Make the folders of two stores."""
    made = [tmp_path / name for name in ("old", "new")]
    for folder in made:
        folder.mkdir()
    return made
