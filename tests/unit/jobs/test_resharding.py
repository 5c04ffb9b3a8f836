"""Another number of shards while jobs come and go."""

import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from dueline.core.clock import SystemClock
from dueline.core.job import Job, JobId
from dueline.core.store import Drop, Store
from dueline.jobs.queue import Queues
from dueline.stores.memory.store import MemoryStore
from dueline.stores.sqlite.store import SqliteStore
from dueline.worker.claimer import Claimer
from tests.harness.calls import call, calls, put
from tests.harness.cluster import Cluster
from tests.harness.queues import queues_on
from tests.harness.stepped_store import SteppedMemoryStore
from tests.harness.world import EVERY_KIND

WAIT_S = 300
JOBS_A_TIME = 40
COUNTS = (7, 3)


def opener(kind: str, folder: Path) -> Callable[[], Store]:
    """Make what opens the store as another process does."""
    clock = SystemClock()
    if kind == "sqlite":
        return lambda: SqliteStore(folder / "q.db", clock=clock, synchronous="NORMAL")
    if kind == "steps":
        cluster = Cluster()
        return lambda: SteppedMemoryStore(clock, cluster=cluster)
    store = MemoryStore(clock)
    return lambda: store


class Site:
    """A queue in use: producers and workers in threads, each with an engine of its own."""

    def __init__(self, open_one: Callable[[], Store]) -> None:
        """Take what opens the store."""
        self._open = open_one
        self.put: list[Job] = []
        self.claims: list[list[Job]] = []
        self.is_over = threading.Event()
        self._producers: list[threading.Thread] = []
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    def engine(self) -> Queues:
        """Make an engine, as each process has one, with settings as old as they may be."""
        return queues_on(self._open(), SystemClock())

    def start(self, act: Callable[[], None]) -> None:
        """Do something in a thread."""

        def lead() -> None:
            try:
                act()
            except BaseException as error:  # noqa: BLE001  (raised in the test's thread)
                self._errors.append(error)

        self._threads.append(threading.Thread(target=lead))
        self._threads[-1].start()

    def produce(self, seed: int) -> None:
        """Enqueue until the end; the settings are read anew now and then, as they age."""
        self._producers.append(threading.current_thread())
        engine, chance = self.engine(), random.Random(seed)
        while not self.is_over.is_set():
            if chance.random() < 0.1:
                engine.engine.catalog.forget("default")
            self.put += put(engine, call(priority=chance.choice((0, 5))))

    def work(self) -> None:
        """Claim and end jobs until all are done."""
        engine = self.engine()
        claimer = Claimer(engine.engine, ["default"], "w")
        while True:
            was_over = self.is_over.is_set() and not any(
                producer.is_alive() for producer in self._producers
            )
            claimer.refresh()
            taken = [claimed.job for claimed in claimer.claim(10, {})]
            if taken:
                self.claims.append(taken)
                assert all(engine.engine.store.settle([Drop(job) for job in taken]))
            elif was_over and self.is_empty():
                return

    def is_empty(self) -> bool:
        """Tell whether no job is left."""
        return len(self.put) <= sum(map(len, self.claims))

    def wait(self, count: int) -> None:
        """Wait until so many jobs more were put in."""
        until = len(self.put) + count
        self.until(lambda: len(self.put) >= until)

    def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so, or somebody has failed."""
        while not is_so() and not self._errors:
            self.is_over.wait(0.001)

    def end(self) -> None:
        """Let everybody come to an end."""
        self.is_over.set()
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive(), "a job is left that nobody finds"
        if self._errors:
            raise self._errors[0]


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_no_job_is_lost_or_doubled_while_shards_become_more_and_fewer(
    kind: str, tmp_path: Path
) -> None:
    # H7
    site = Site(opener(kind, tmp_path))
    operator = site.engine()
    operator.engine.catalog.settings("default")
    for seed in range(2):
        site.start(lambda seed=seed: site.produce(seed))  # type: ignore[misc]
    for _ in range(2):
        site.start(site.work)
    try:
        site.wait(JOBS_A_TIME)
        for shards in COUNTS:
            operator.engine.catalog.configure("default", shards=shards)
            site.wait(JOBS_A_TIME)
            # Some come when there are more, however late producers learn of it.
            site.until(lambda: max(job.lane.shard for job in list(site.put)) >= min(COUNTS))
    finally:
        site.end()
    claimed = Counter(job.id for claim in site.claims for job in claim)
    assert claimed == Counter(job.id for job in site.put)
    for claim in site.claims:  # inside a lane a claim takes the first in their order
        for lane in {job.lane for job in claim}:
            mine = [(job.pos_us, job.id) for job in claim if job.lane == lane]
            assert mine == sorted(mine)


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_new_jobs_spread_over_the_new_number_and_old_ones_are_found_where_they_are(
    kind: str, tmp_path: Path
) -> None:
    # H7
    open_one = opener(kind, tmp_path)
    site = Site(open_one)
    engine = site.engine()
    worker = site.engine()
    claimer = Claimer(worker.engine, ["default"], "w")
    claimer.refresh()
    job_ids: set[JobId] = set()
    rows: list[Job] = []
    for shards in (1, *COUNTS):
        engine.engine.catalog.configure("default", shards=shards)
        born = put(engine, calls(0, 200))  # so many that some come to each
        assert {job.lane.shard for job in born} == set(range(shards))
        rows += born
    assert worker.engine.catalog.settings("default").shards_read == 1  # it has not heard of it
    claimer.refresh()
    claimer.refresh()
    while taken := claimer.claim(100, {}):
        job_ids |= {claimed.job.id for claimed in taken}
    assert job_ids == {job.id for job in rows}
