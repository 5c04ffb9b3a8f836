"""Claims beside idle queues, and beside idle lanes of the same queue.

Each measures the whole of what a worker does for a job that has just come: look, claim, end.
Times of the processor, since other programs of the machine are no part of it.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks.commands import Sample
from dueline.core.clock import DAY_US, SystemClock
from dueline.core.codec import JSON
from dueline.core.ids import Ids
from dueline.core.job import Job
from dueline.core.lane import Lane, bucket_of
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Drop
from dueline.jobs.history_recorder import open_engine
from dueline.jobs.queue import EnqueueRequest, Queues
from dueline.stores.sqlite.store import SqliteStore
from dueline.worker.claimer import Claimer

FEW = 1_000
RATIO_MAX = 2.0
CLAIMS = 300

_BATCH = 5_000


def measure(folder: Path, *, most: int) -> Mapping[str, Sample]:
    """Time claims beside 1,000 and beside `most` idle lanes, of others' queues and of its own."""
    names = {"ours": ("queues", most), "few": ("queues", FEW),
             "tenants": ("tenants", most), "few tenants": ("tenants", FEW)}  # fmt: skip
    return {name: {"claim_us": _claim_us(folder, *what)} for name, what in names.items()}


def bars(found: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
    """Compare the ratios of Cassandra with what is asked (H9)."""
    return [
        {"what": name, "at_most": RATIO_MAX, "median": ratio, "is_met": ratio <= RATIO_MAX}
        for name, ratio in found.items()
        if name.startswith("ratio") and isinstance(ratio, float)
    ]


def _claim_us(folder: Path, kind: str, count: int) -> float:
    clock = SystemClock()
    store = SqliteStore(folder / f"{kind}-{count}.db", clock=clock, synchronous="NORMAL")
    queues = Queues(open_engine(store, clock=clock, ids=Ids(), defaults=QueueSettings()))
    for start in range(0, count, _BATCH):
        store.add([_idle(queues, kind, start + number) for number in range(min(_BATCH, count))])
    claimer = Claimer(queues.engine, ["default"], "w")
    times_us = []
    for _ in range(CLAIMS):
        queues.enqueue(EnqueueRequest("default", "t", JSON, [b"[]"]))
        began = time.process_time()
        claimer.refresh()
        taken = claimer.claim(10, {})
        assert store.settle([Drop(one.job) for one in taken]) == [True]
        times_us.append((time.process_time() - began) * 1e6)
    store.close()
    return median(times_us)


def _idle(queues: Queues, kind: str, number: int) -> Job:
    """Make a job for the day after tomorrow, in a lane of its own."""
    at_us = queues.engine.time.latest_us() + 2 * DAY_US
    (job_id,) = queues.engine.ids.many(1, at_us)
    name = f"{kind}{number}"
    queue, tenant = (name, "") if kind == "queues" else ("default", name)
    lane = Lane(queue, 0, bucket_of(at_us, QueueSettings().width_us), 0, tenant)
    return Job(lane, at_us, job_id, 0, at_us, at_us, "t", JSON, b"[]", b"", at_us)
