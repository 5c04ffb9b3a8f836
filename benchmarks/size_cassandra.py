"""A million jobs through one queue on a Cassandra node, and what reading them met.

`python -m benchmarks.size_cassandra 127.0.0.1` prints as JSON how fast a worker drains from a full
queue and from one that is nearly empty, how many deleted rows its reads crossed (the node traces
one read in fifty), and the same of a queue in one partition. `--jobs 1000000 --later 100000`.
"""

import argparse
import itertools
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any, Final

from benchmarks import naive_cassandra, raw_cassandra
from benchmarks.against_cassandra import opened
from benchmarks.ours import BODY, TEXT
from benchmarks.raw_cassandra import Raw
from benchmarks.traces_cassandra import kind_of, tombstones
from dueline import Dueline
from dueline.api.launch import make_worker
from dueline.api.worker_plan import plan_of
from dueline.core.clock import to_datetime
from dueline.stores.cassandra.store import CassandraStore

TRACED_ONE_IN: Final = 50
CHUNK: Final = 20_000
LATER_S: Final = 86_400
LIGHT_GAP_S, LIGHT_JOBS = 0.02, 1_500
SETTLED_S: Final = 5.0
SINGLES: Final = 1_000
QUEUE: Final = "size"


class Traced:
    """Has the node trace one read of jobs in fifty."""

    def __init__(self, store: CassandraStore) -> None:
        """Listen to its connection."""
        self._reads = 0
        self._asked: dict[str, list[Any]] = {"onward": [], "again": []}
        driver: Any = store._session._connected()  # noqa: SLF001  (what is sent is seen there alone)
        self._send: Callable[..., Any] = driver.execute_async
        driver.execute_async = self._watch

    def _watch(self, statement: Any, *args: object, **kwargs: object) -> Any:  # noqa: ANN401
        kind = kind_of(statement)
        self._reads += kind is not None
        if kind is None or self._reads % TRACED_ONE_IN:
            return self._send(statement, *args, **kwargs)
        future = self._send(statement, *args, **{**kwargs, "trace": True})
        self._asked[kind].append(future)
        return future

    def told(self) -> Mapping[str, object]:
        """Read the traces since the last time; say how many deleted rows reads crossed."""
        crossed = {kind: list(map(tombstones, asked)) for kind, asked in self._asked.items()}
        figures = {
            "reads": self._reads,
            "tombstones a read": _spread(crossed["onward"]),
            "tombstones a read from a lane's start": _spread(crossed["again"]),
        }
        self._asked, self._reads = {"onward": [], "again": []}, 0
        return figures


def _spread(found: Sequence[int]) -> Mapping[str, object]:
    if not found:
        return {"reads": 0}
    return {"reads": len(found), "median": median(found), "max": max(found), "sum": sum(found)}


class Queue:
    """A queue with a task that does nothing but count, and one that tells how late it started."""

    def __init__(self, url: str) -> None:
        """Make the queue, with its history."""
        self.app = Dueline(url)
        self.app.queue(QUEUE, history="attempts", keep=0)
        self._counter = itertools.count(1)
        self.done = 0
        self.late_us: list[int] = []

        @self.app.task(name="noop", queue=QUEUE)
        def noop(text: str) -> None:
            del text
            self.done = next(self._counter)

        @self.app.task(name="light", queue=QUEUE)
        def light(due_us: int) -> None:
            self.late_us.append(time.time_ns() // 1000 - due_us)

        self.noop, self.light = noop, light
        assert isinstance(self.app.store, CassandraStore)
        self.app.queues.engine.catalog.settings(QUEUE)  # connects
        self.traced = Traced(self.app.store)

    def fill(self, jobs: int, later: int) -> Mapping[str, object]:
        """Enqueue jobs for tomorrow, then those for now."""
        began_s = time.perf_counter()
        self.noop.using(after=LATER_S).enqueue_many([(TEXT,)] * later)
        for start in range(0, jobs, CHUNK):
            self.noop.enqueue_many([(TEXT,)] * min(CHUNK, jobs - start))
        rate = (later + jobs) / (time.perf_counter() - began_s)
        return {"enqueued": jobs, "for tomorrow": later, "a second": round(rate)}

    def drain(self, jobs: int) -> Mapping[str, object]:
        """Drain what is due; the rate of each CHUNK, in order."""
        rates: list[int] = []
        ended = threading.Event()

        def watch() -> None:
            last, last_s = 0, time.perf_counter()
            while not ended.wait(0.02):
                if (done := self.done) - last >= CHUNK:
                    now_s = time.perf_counter()
                    rates.append(round((done - last) / (now_s - last_s)))
                    last, last_s = done, now_s

        watcher = threading.Thread(target=watch)
        watcher.start()
        self.app.run_worker([QUEUE], burst=True)
        ended.set()
        watcher.join()
        assert self.done == jobs, f"{self.done} of {jobs} jobs ended"
        fifth = max(1, len(rates) // 5)
        return {
            "jobs a second, median": round(median(rates)),
            "of the first fifth": round(median(rates[:fifth])),
            "of the last fifth": round(median(rates[-fifth:])),
            "chunks": rates,
            **self.traced.told(),
        }

    def trickle(self) -> Mapping[str, object]:
        """Run a worker under a light schedule; how late jobs start, and what claims met."""
        worker = make_worker(self.app, plan_of([QUEUE], 4, 25, 0))
        thread = threading.Thread(target=worker.run)
        thread.start()
        time.sleep(SETTLED_S)
        for _ in range(LIGHT_JOBS):
            due_us = time.time_ns() // 1000 + 500_000
            self.light.using(due=to_datetime(due_us)).enqueue(due_us)
            time.sleep(LIGHT_GAP_S)
        while len(self.late_us) < LIGHT_JOBS:
            time.sleep(0.1)
        worker.stop()
        thread.join()
        late_ms = sorted(late / 1000 for late in self.late_us)
        return {
            "jobs": LIGHT_JOBS,
            "late p50 ms": round(median(late_ms)),
            "late p99 ms": round(late_ms[int(0.99 * len(late_ms))]),
            "early": sum(late < 0 for late in late_ms),
            **self.traced.told(),
        }


def lock_per_job(raw: Raw) -> int:
    """Claim and drop jobs one by one, a conditional write for each; jobs a second."""
    births = raw_cassandra.rows(SINGLES, "singly", BODY)
    raw_cassandra.insert(raw, births)
    began_s = time.perf_counter()
    drained = raw_cassandra.drain_singly(raw, births)
    return round(drained / (time.perf_counter() - began_s))


def counters(raw: Raw, table: str) -> Mapping[str, object]:
    """Ask the node itself how many deleted rows its reads of a table crossed."""
    text = "SELECT * FROM system_views.tombstones_per_read WHERE keyspace_name = %s"
    found = raw.session.execute(f"{text} AND table_name = %s", (raw.session.keyspace, table))
    return dict(zip(found.column_names, next(iter(found)), strict=True))


def main() -> None:
    """Measure in a keyspace of its own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.size_cassandra")
    parser.add_argument("host")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--later", type=int, default=100_000)
    parser.add_argument("--naive", type=int, default=300_000)
    chosen = parser.parse_args()
    with opened(chosen.host) as (url, raw):
        queue = Queue(f"{url}?timeout=60s")
        _tell("filled", queue.fill(chosen.jobs, chosen.later))
        _tell("a lock per job, a second", lock_per_job(raw))
        _tell("drained", queue.drain(chosen.jobs))
        _tell("a lock per job, a second", lock_per_job(raw))
        _tell("the node's counters", counters(raw, "jobs"))
        _tell("light schedule", queue.trickle())
        _tell("the node's counters", counters(raw, "jobs"))
        queue.app.close()
        heads = naive_cassandra.run(raw.session, chosen.naive, BODY, told_every=10_000)
        _tell("one partition", {"jobs": chosen.naive, "head": [asdict(head) for head in heads]})


def _tell(name: str, figures: object) -> None:
    print(json.dumps({name: figures}), flush=True)


if __name__ == "__main__":
    main()
