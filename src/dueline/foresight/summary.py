"""Start latencies as histograms that can be added, by queue, tenant and minute."""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Self

import msgspec

from dueline.core.clock import SECOND_US
from dueline.foresight.record import UNKNOWN, Record
from dueline.foresight.scenario import SimulatedWorker
from dueline.foresight.simulation import Simulated
from dueline.foresight.target import Target

MINUTE_US: Final = 60 * SECOND_US
FINENESS: Final = 100
"""Steps of a histogram in which a latency grows by the factor e, so a step is 1 % wide."""


class Latencies(NamedTuple):
    """Percentiles of start latencies in microseconds, and the share of starts above a target."""

    starts: int
    p50_us: int
    p95_us: int
    p99_us: int
    late: float


Cell = tuple[str, str, int, dict[int, int]]
"""Queue, tenant, minute, and the number of starts by step of their latency."""


class Outcome(msgspec.Struct, frozen=True):
    """What happened in a run, real or simulated.

    Attributes:
      cells: Start latencies.
      busy_us: Sum of run times.
      slot_us: Sum of the times for which slots were there.
      unstarted: Attempts that never started.
      slots: The most slots of a worker.
      since_us, until_us: When the first job was ready, and the last attempt ended.
    """

    cells: list[Cell]
    busy_us: int = 0
    slot_us: int = 0
    unstarted: int = 0
    slots: int = 0
    since_us: int = 0
    until_us: int = 0

    @property
    def utilisation(self) -> float:
        """Return the share of slot time in which jobs ran."""
        return self.busy_us / self.slot_us if self.slot_us else 0.0

    @classmethod
    def joined(cls, outcomes: Iterable[Self]) -> Self:
        """Return the outcome of several runs side by side."""
        parts = list(outcomes)
        return cls(
            [cell for part in parts for cell in part.cells],
            sum(part.busy_us for part in parts),
            sum(part.slot_us for part in parts),
            sum(part.unstarted for part in parts),
            max((part.slots for part in parts), default=0),
            min((part.since_us for part in parts if part.cells), default=0),
            max((part.until_us for part in parts), default=0),
        )

    def of_queues(self, names: Sequence[str]) -> "Outcome":
        """Return the cells of some queues; all if none is named."""
        cells = [cell for cell in self.cells if not names or cell[0] in names]
        return msgspec.structs.replace(self, cells=cells)

    def latencies(self, target: Target) -> Latencies:
        """Return the latencies of all starts."""
        return _latencies(self.cells, target)

    def by(
        self, key: Callable[[Cell], tuple[object, ...]], target: Target
    ) -> Mapping[tuple[object, ...], Latencies]:
        """Return the latencies by a key of cells, in its order."""
        groups: dict[tuple[object, ...], list[Cell]] = {}
        for cell in self.cells:
            groups.setdefault(key(cell), []).append(cell)
        return {name: _latencies(groups[name], target) for name in sorted(groups)}

    def meets(self, target: Target) -> bool:
        """Return whether the share of starts within the target is large enough."""
        latencies = self.latencies(target)
        return not self.unstarted and latencies.late <= 1 - target.share + 1e-12


def _value_of(step: int) -> int:
    return round(math.exp((step + 0.5) / FINENESS) - 1)


def _latencies(cells: Sequence[Cell], target: Target) -> Latencies:
    counts: Counter[int] = Counter()
    for _, _, _, steps in cells:
        counts.update(steps)
    order = sorted(counts)
    totals: list[int] = []
    total = 0
    for step in order:
        total += counts[step]
        totals.append(total)
    if not total:
        return Latencies(0, 0, 0, 0, 0.0)
    p50_us, p95_us, p99_us = (
        _value_of(order[min(bisect_right(totals, share * total), len(order) - 1)])
        for share in (0.5, 0.95, 0.99)
    )
    late = sum(count for step, count in counts.items() if _value_of(step) > target.most_us)
    return Latencies(total, p50_us, p95_us, p99_us, late / total)


def outcome_of(
    record: Record, times: Simulated, workers: Sequence[SimulatedWorker], bounds_us: tuple[int, int]
) -> Outcome:
    """Return the outcome of a run.

    Args:
        record: The attempts.
        times: When each was ready and started.
        workers: The workers.
        bounds_us: The period in which their slots count.
    """
    names = [(kind.queue, kind.tenant) for kind in record.kinds]
    cells: dict[tuple[tuple[str, str], int], dict[int, int]] = {}
    busy_us = unstarted = 0
    columns = (record.kind, times.ready_us, times.started_us, record.started_us, record.ended_us)
    for kind, ready_us, at_us, started_us, ended_us in zip(*columns, strict=True):
        if at_us == UNKNOWN:
            unstarted += 1
            continue
        busy_us += ended_us - started_us
        if ready_us == UNKNOWN:
            continue
        key = (names[kind], ready_us // MINUTE_US)
        steps = cells.get(key)
        if steps is None:
            steps = cells[key] = {}
        step = int(math.log(max(0, at_us - ready_us) + 1) * FINENESS)
        steps[step] = steps.get(step, 0) + 1
    since_us, until_us = bounds_us
    slot_us = sum(
        worker.slots * max(0, min(worker.until_us, until_us) - max(worker.since_us, since_us))
        for worker in workers
    )
    rows = [(*name, minute, steps) for (name, minute), steps in cells.items()]
    slots = max(worker.slots for worker in workers)
    return Outcome(rows, busy_us, slot_us, unstarted, slots, since_us, until_us)


def errors_of(real: Latencies, simulated: Latencies) -> dict[str, float]:
    """Return the relative errors of the simulated percentiles."""
    pairs = zip(("p50", "p95", "p99"), real[1:4], simulated[1:4], strict=True)
    return {name: (simulated_us - true) / max(true, 1) for name, true, simulated_us in pairs}
