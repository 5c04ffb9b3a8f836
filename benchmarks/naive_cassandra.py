"""The queue that everybody writes first: one partition, rows deleted when done.

The head of the queue is read from the start of the partition, which is where everything lies that
has been deleted and not yet compacted away: each read crosses it all, until the server refuses.
"""

import os
import time
from dataclasses import dataclass
from typing import Final

from cassandra import ReadFailure
from cassandra.cluster import Session

from benchmarks.raw_cassandra import BATCH, batch_of

_CREATE: Final = (
    "CREATE TABLE naive (queue text, at_us bigint, id blob, body blob,"
    " PRIMARY KEY ((queue), at_us, id)) WITH compaction ="
    " {'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'L4'}"
)
_INSERT: Final = "INSERT INTO naive (queue, at_us, id, body) VALUES ('q', ?, ?, ?)"
_HEAD: Final = "SELECT at_us, id, body FROM naive WHERE queue = 'q' LIMIT 100"  # BATCH
_DELETE: Final = "DELETE FROM naive WHERE queue = 'q' AND at_us = ? AND id = ?"


@dataclass(frozen=True, slots=True)
class Head:
    """A read of the head, after so many jobs. took_ms: None where the server refused it."""

    done: int
    took_ms: float | None


def run(session: Session, jobs: int, body: bytes, *, told_every: int) -> list[Head]:
    """Enqueue jobs, drain them a hundred at once, and time reads of the head on the way."""
    session.execute(_CREATE, timeout=60)
    insert, head, delete = map(session.prepare, (_INSERT, _HEAD, _DELETE))
    now_us = time.time_ns() // 1000
    for start in range(0, jobs, BATCH):
        rows = [(now_us + number, os.urandom(16), body) for number in range(start, start + BATCH)]
        session.execute(batch_of(insert, rows))
    told: list[Head] = []
    done = 0
    while done < jobs:
        began_s = time.perf_counter()
        try:
            rows = list(session.execute(head))
        except ReadFailure:
            told.append(Head(done, None))
            break
        if done % told_every == 0:
            told.append(Head(done, round(1000 * (time.perf_counter() - began_s), 1)))
        session.execute(batch_of(delete, [row[:2] for row in rows]))
        done += len(rows)
    return told
