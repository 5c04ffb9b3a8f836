"""The store of a run: as clients reach it, and as the verdict reads it."""

import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Literal

from dueline.core.job import Job, JobId
from dueline.core.lane import DEAD_SUFFIX
from dueline.core.store import Store
from dueline.stores.memory.store import MemoryStore
from dueline.stores.sqlite.store import SqliteStore
from simulation.clocks import StoreClock
from simulation.link import Link
from simulation.scenario import QUEUE
from simulation.shop import RunLog
from simulation.wires import stepped, wired
from simulation.world import World
from tests.harness.cluster import Cluster
from tests.harness.stepped_store import SteppedMemoryStore

DEAD_MAX = 1000
Kind = Literal["memory", "steps", "sqlite"]

SQLITE_ONE_IN = 4
"""Of this many runs on a transactional store one uses SQLite's own statements."""

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  (the folder inside it is this process's own)


def kind_of(seed: int, *, is_stepped: bool) -> Kind:
    """Return the kind of store of a run; a seed always has the same."""
    if is_stepped:
        return "steps"
    return "sqlite" if (seed >> 1) % SQLITE_ONE_IN == 0 else "memory"


class Data:
    """Stored data. store: direct access, without a link."""

    def __init__(self, world: World, kind: Kind) -> None:
        """Start empty; an SQLite file is in a separate folder until `close`."""
        clock = StoreClock(world)
        self._folder: str | None = None
        self._cluster = Cluster()
        self.store: Store
        self.reach: Callable[[Link], Store] = lambda link: wired(self.store, link)
        if kind == "memory":
            self.store = MemoryStore(clock)
        elif kind == "steps":
            self.store = SteppedMemoryStore(clock, cluster=self._cluster, remember=False)
            self.reach = lambda link: stepped(self._cluster, link, clock)
        else:
            place = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None
            self._folder = tempfile.mkdtemp(prefix="simulation-", dir=place)
            file = Path(self._folder, "queue.db")
            self.store = SqliteStore(file, clock=clock, synchronous="NORMAL")

    def close(self) -> None:
        """Close the store, and remove its file."""
        self.store.close()
        if self._folder is not None:
            shutil.rmtree(self._folder)

    def rows(self, ids: Collection[str]) -> Iterable[Job]:
        """Read the rows of jobs, listed or not, without changing anything."""
        if isinstance(self.store, MemoryStore):
            return (row for lane in self.store._rows.values() for row in lane.values())  # noqa: SLF001
        if isinstance(self.store, SteppedMemoryStore):
            return self._cells()
        rows = self.store.find([JobId(bytes.fromhex(job_id)) for job_id in ids])
        return (row for row in rows if row is not None)

    def _cells(self) -> Iterator[Job]:
        for rows in self._cluster.rows.values():
            for job, stub in rows.values():
                yield stub.target if stub else job

    def list_dead(self) -> None:
        """List dead-letter jobs, which also completes interrupted redrives."""
        for lane in [lane for lane in self._cluster.rows if lane.queue.endswith(DEAD_SUFFIX)]:
            self.store.scan(lane, after=None, until_us=None, limit=DEAD_MAX)

    def living(self, diary: RunLog) -> list[Job]:
        """List the rows of jobs that were acknowledged, and have not ended.

        Others may be in an unlisted lane until their calls are repeated.
        """
        known = diary.acknowledged
        rows = self.rows(known)
        return [row for row in rows if row.lane.queue == QUEUE and row.id.hex() in known]
