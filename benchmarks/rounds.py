"""Rounds, medians, ratios."""

import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True, slots=True)
class Ratios:
    """Ratios of one thing to another, one a round. 1.0: as fast as the other."""

    median: float
    min: float
    max: float


@dataclass(slots=True)
class Rounds:
    """What was timed: jobs per second by name, one figure a round."""

    rates: dict[str, list[float]] = field(default_factory=dict)

    @contextmanager
    def timed(self, name: str, jobs: int) -> Iterator[None]:
        """Time a block that handles so many jobs; what was made before is no burden to it."""
        gc.collect()
        began = time.perf_counter()
        yield
        self.rates.setdefault(name, []).append(jobs / (time.perf_counter() - began))

    def ratios(self, name: str, to: str) -> Ratios:
        """Compare round by round: neighbours in time suffer alike from whatever else runs."""
        each = [
            ours / theirs for ours, theirs in zip(self.rates[name], self.rates[to], strict=True)
        ]
        return Ratios(round(median(each), 3), round(min(each), 3), round(max(each), 3))

    def medians(self) -> Mapping[str, int]:
        """Tell the median rate of everything, jobs per second."""
        return {name: round(median(rates)) for name, rates in self.rates.items()}
