"""Claims on a Cassandra node, beside idle lanes and beside idle queues.

Each measures the whole of what a worker does for a job that has just come: look, claim, end.
Two keyspaces, one with few idle lanes and one with many, take turns claim by claim, so that
whatever else the machine does befalls both.
"""

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Final

from benchmarks import against_cassandra
from benchmarks.idle import FEW
from dueline.api.connect import open_store, queue_defaults
from dueline.core.clock import SECOND_US, SystemClock
from dueline.core.codec import JSON
from dueline.core.ids import Ids
from dueline.core.job import Job
from dueline.core.lane import Lane, bucket_of
from dueline.core.store import Drop
from dueline.jobs.history_recorder import open_engine
from dueline.jobs.queue import EnqueueRequest, Queues
from dueline.stores.cassandra.store import CassandraStore
from dueline.worker.claimer import Claimer

CLAIMS: Final = 50
FIRSTS: Final = 9
LATER_US: Final = 3600 * SECOND_US
"""When the idle lanes have a job: later, and most often in the day whose list is read."""

_BATCH: Final = 2_000
_QUEUE: Final = "default"
_SETTINGS: Final = queue_defaults("cassandra://")


class Side:
    """A keyspace with so many idle lanes, a worker's claimer, and what its claims took."""

    def __init__(self, store: CassandraStore) -> None:
        """Take an empty keyspace."""
        self.statements = 0
        self._store = store
        self._queues = Queues(
            open_engine(store, clock=SystemClock(), ids=Ids(), defaults=_SETTINGS)
        )
        self._claimer = Claimer(self._queues.engine, [_QUEUE], "w")
        driver = store._session._connected()  # noqa: SLF001  (what is sent is seen there alone)
        driver.add_request_init_listener(self._note)

    def _note(self, _request: object) -> None:
        self.statements += 1

    def fill(self, kind: str, count: int) -> None:
        """Add a job for later to each of so many lanes, of tenants or of other queues."""
        for start in range(0, count, _BATCH):
            numbers = range(start, min(start + _BATCH, count))
            self._store.add([_idle(self._queues, kind, number) for number in numbers])

    def first_ms(self) -> float:
        """Time the first claim of a claimer that has just begun."""
        self._claimer = Claimer(self._queues.engine, [_QUEUE], f"w-{secrets.token_hex(4)}")
        return self.claim()[0]

    def claim(self) -> tuple[float, int]:
        """Enqueue a job; tell how long look, claim and end took, and in how many statements."""
        self._queues.enqueue(EnqueueRequest(_QUEUE, "t", JSON, [b"[]"]))
        before, began_s = self.statements, time.perf_counter()
        self._claimer.refresh()
        taken = self._claimer.claim(10, {})
        assert self._store.settle([Drop(one.job) for one in taken]) == [True]
        return (time.perf_counter() - began_s) * 1e3, self.statements - before


def measure(host: str, *, most: int) -> Mapping[str, object]:
    """Time claims beside 1,000 and beside `most` idle lanes, of its own queue and of others.

    Queues, of which a claim reads nothing, are a tenth as many: it takes long to make them.
    """
    found: dict[str, object] = {}
    for kind, many in (("tenants", most), ("queues", max(FEW, most // 10))):
        with ExitStack() as stack:
            sides = [stack.enter_context(_side(host, kind, count)) for count in (FEW, many)]
            first_ms = [median(side.first_ms() for _ in range(FIRSTS)) for side in sides]
            rounds = [[side.claim() for side in sides] for _ in range(CLAIMS)]
        claims_ms = [median(took_ms for took_ms, _ in one) for one in zip(*rounds, strict=True)]
        found |= {
            f"idle_{kind}": [FEW, many],
            f"first_claim_ms_beside_idle_{kind}": [round(one, 1) for one in first_ms],
            f"claim_ms_beside_idle_{kind}": [round(one, 1) for one in claims_ms],
            f"statements_beside_idle_{kind}": [
                median(count for _, count in one) for one in zip(*rounds, strict=True)
            ],
            f"ratio_beside_idle_{kind}": round(claims_ms[1] / claims_ms[0], 2),
        }
    return found


@contextmanager
def _side(host: str, kind: str, count: int) -> Iterator[Side]:
    """Make a keyspace with so many idle lanes of a kind, dropped at the end."""
    with against_cassandra.opened(host) as (url, raw):
        store = open_store(url)
        assert isinstance(store, CassandraStore)
        side, alter = Side(store), f"ALTER KEYSPACE {url.rpartition('/')[2]} WITH durable_writes = "
        # Nothing dies here: it is filled in half the time.
        raw.session.execute(f"{alter} false", timeout=60)
        side.fill(kind, count)
        raw.session.execute(f"{alter} true", timeout=60)
        side.claim()  # statements are prepared once for each process
        yield side
        store.close()


def _idle(queues: Queues, kind: str, number: int) -> Job:
    """Make a job for later, in a lane of its own."""
    at_us = queues.engine.time.latest_us() + LATER_US
    (job_id,) = queues.engine.ids.many(1, at_us)
    name = f"{kind}{number}"
    queue, tenant = (name, "") if kind == "queues" else (_QUEUE, name)
    shard, bucket = number % _SETTINGS.shards, bucket_of(at_us, _SETTINGS.width_us)
    lane = Lane(queue, shard, bucket, 0, tenant)
    return Job(lane, at_us, job_id, 0, at_us, at_us, "t", JSON, b"[]", b"", at_us)
