"""Many runs, on all cores."""

import gc
import logging
import multiprocessing
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from simulation.lives import live

CHUNK = 20
FAILURES_MAX = 20

YOUNG_OBJECTS = 50_000


@dataclass
class Sum:
    """Totals of many runs. failed: verdicts by seed. befell: counts of injected faults."""

    lives: int = 0
    steps: int = 0
    calls: int = 0
    simulated_us: int = 0
    cpu_s: float = 0.0
    drained_us_max: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    befell: Counter[str] = field(default_factory=Counter)
    failed: dict[int, list[str]] = field(default_factory=dict)
    digests: dict[int, str] = field(default_factory=dict)

    def add(self, other: "Sum") -> None:
        """Add other totals."""
        self.lives += other.lives
        self.steps += other.steps
        self.calls += other.calls
        self.simulated_us += other.simulated_us
        self.cpu_s += other.cpu_s
        self.drained_us_max = max(self.drained_us_max, other.drained_us_max)
        self.counts += other.counts
        self.befell += other.befell
        self.failed |= other.failed
        self.digests |= other.digests


def quieten() -> None:
    """Disable logging, and collect garbage less often."""
    logging.disable(logging.CRITICAL)
    gc.set_threshold(YOUNG_OBJECTS, 20, 50)


def led(seeds: Sequence[int]) -> Sum:
    """Run some seeds, one after the other."""
    total = Sum()
    began_s = time.process_time()
    for seed in seeds:
        life = live(seed)
        total.lives += 1
        total.steps += life.steps
        total.calls += life.calls
        total.simulated_us += life.simulated_us
        total.drained_us_max = max(total.drained_us_max, life.drained_us)
        total.counts.update(life.counts)
        total.befell.update(_kind(what) for _, _, what in life.accidents)
        total.digests[seed] = life.digest
        if life.faults:
            total.failed[seed] = sorted(life.faults)
    total.cpu_s = time.process_time() - began_s
    return total


def _kind(accident: str) -> str:
    """Return the kind of a fault, without the call or job."""
    return re.sub(r"^(job \d+|\S+) ", "", accident)


def lead(seeds: Sequence[int], *, workers: int | None = None) -> Iterator[Sum]:
    """Run seeds in several processes; yield totals in the order of the seeds."""
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    workers = min(workers or os.cpu_count() or 1, len(chunks))
    if workers <= 1:
        quieten()
        yield from map(led, chunks)
        return
    context = multiprocessing.get_context("forkserver")
    with context.Pool(workers, initializer=quieten) as pool:
        yield from pool.imap(led, chunks)
