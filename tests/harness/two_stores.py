"""Two stores, of which one moves to the other."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dueline.admin.move import Moved, Mover
from dueline.core.attempt import Outcome
from dueline.core.job import Job, JobId
from tests.harness.dying_store import Dying
from tests.harness.queues import queues_on
from tests.harness.world import World, clock_for, store_on

ON_REDIS = [pytest.mark.redis, pytest.mark.long]
PAIRS = [
    pytest.param(("memory", "memory"), marks=pytest.mark.memory),
    pytest.param(("sqlite", "steps"), marks=pytest.mark.sqlite),
    pytest.param(("steps", "sqlite"), marks=pytest.mark.sqlite),
    pytest.param(("steps", "steps"), marks=pytest.mark.memory),
    pytest.param(("sqlite", "redis"), marks=ON_REDIS),
    pytest.param(("redis", "steps"), marks=ON_REDIS),
]
NAMES = ("old", "new")


class Two:
    """An old and a new store on one clock."""

    def __init__(self, kinds: tuple[str, str], folder: Path) -> None:
        """Open both, empty."""
        self.clock = clock_for(*kinds)
        for name in NAMES:
            (folder / name).mkdir()
        stores = [
            store_on(kind, folder / name, self.clock)
            for kind, name in zip(kinds, NAMES, strict=True)
        ]
        self.old, self.new = (World(store, self.clock) for store in stores)
        self.ran = Counter[JobId]()
        self.told: list[str] = []

    def close(self) -> None:
        """Close both."""
        self.old.store.close()
        self.new.store.close()

    def mover(
        self,
        dies_at: int = 0,
        report: Callable[[str, Moved], None] | None = None,
        *,
        back: bool = False,
    ) -> Mover:
        """Return a mover of another process."""
        calls = count(1)
        worlds = (self.new, self.old) if back else (self.old, self.new)
        old, new = (
            queues_on(Dying(world.store, calls, dies_at), self.clock) if dies_at else world.other()
            for world in worlds
        )
        names = NAMES[::-1] if back else NAMES
        return Mover(
            old, new, names, clock=self.clock,
            report=report or (lambda text, _: self.told.append(text)),
        )  # fmt: skip

    def run_due(self, world: World) -> None:
        """Claim and end all due jobs of a store, as its workers would."""
        lanes = world.store.lanes_with_rows(after=None, limit=1000).lanes  # type: ignore[attr-defined]
        for lane in lanes:
            if lane.queue.endswith("!dead"):
                continue
            for row in list(world.store.scan(lane, after=None, until_us=None, limit=1000).jobs):
                if row.at_us <= self.clock.wall_us() and not row.outcome:
                    job = world.claim(row.id)
                    self.ran[job.id] += 1
                    world.end(job, Outcome("done", world.now_us, value="1"))

    def rows(self, world: World) -> list[Job]:
        """List all rows of a store."""
        lanes = world.store.lanes_with_rows(after=None, limit=1000).lanes  # type: ignore[attr-defined]
        return [
            row
            for lane in lanes
            for row in world.store.scan(lane, after=None, until_us=None, limit=1000).jobs
        ]


@contextmanager
def two(kinds: tuple[str, str]) -> Iterator[Two]:
    """Open two empty stores."""
    with TemporaryDirectory() as folder:
        made = Two(kinds, Path(folder))
        yield made
        made.close()
