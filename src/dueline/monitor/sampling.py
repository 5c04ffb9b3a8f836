"""Record the depth and the start latency of queues periodically."""

from collections.abc import Sequence
from dataclasses import dataclass

from dueline.coordination import notes
from dueline.coordination.worker_registry import Presence, present
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.codec import encode
from dueline.core.engine import Engine
from dueline.core.maintenance import StepResult
from dueline.core.store import Put, Records
from dueline.jobs.counts import count

EVERY_US = 60 * SECOND_US
QUEUES_A_STEP = 20
SAMPLES_MAX = 60
"""Maximum number of samples of a queue: one hour; they expire after a day."""

SCAN_MAX = 2_000
"""Jobs of one queue that are read for a sample."""

_KIND = "samples"


@dataclass(frozen=True, slots=True)
class Sample:
    """A queue at one time. lag_us: how long its oldest ready job had waited, 0 without one."""

    at_us: int
    ready: int
    running: int
    scheduled: int
    retrying: int
    dead: int
    lag_us: int
    is_capped: bool


def sample(engine: Engine, after: str | None) -> StepResult:
    """Sample some queues. A queue that stays empty is not stored, so idle queues cost no space."""
    now_us = engine.time.latest_us()
    names = engine.catalog.names_after(after, QUEUES_A_STEP)
    workers = present(engine.store)
    found = [put for name in names if (put := _sampled(engine, name, workers, now_us)) is not None]
    return StepResult(len(found), names[-1] if len(names) == QUEUES_A_STEP else None, found)


def samples_of(records: Records, queue: str) -> list[Sample]:
    """Read the samples of a queue, the last one last."""
    return notes.value(records, _KIND, queue, list[Sample]) or []


def _sampled(engine: Engine, name: str, workers: Sequence[Presence], now_us: int) -> Put | None:
    counts = count(engine, name, workers, most=SCAN_MAX)
    oldest_us = counts.oldest_ready_us
    before = samples_of(engine.store, name)
    if not (counts.living() or counts.dead or before):
        return None
    taken = Sample(
        now_us,
        counts.ready,
        counts.running,
        counts.scheduled,
        counts.retrying,
        counts.dead,
        0 if oldest_us is None else max(0, now_us - oldest_us),
        counts.is_capped,
    )
    kept = [*before, taken][-SAMPLES_MAX:]
    return notes.put(_KIND, name, encode(kept), engine.ids.token(), expires_us=now_us + DAY_US)
