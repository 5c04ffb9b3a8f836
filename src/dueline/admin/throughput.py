"""Throughput and start latency of jobs, from history."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from dueline.admin.search import ends_of
from dueline.core.attempt import Attempt
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.foresight.rates import FAILED

WINDOWS_US = (10 * SECOND_US, 60 * SECOND_US, 300 * SECOND_US)
"""How far back history is read, until there are enough attempts."""

ENOUGH = 5_000
"""Number of attempts that is enough."""

ATTEMPTS_MAX = 1_000_000
"""Maximum number of attempts that are read; of each only the outcome and the latency is kept."""


class Throughput(NamedTuple):
    """The outcomes of the attempts in a period.

    failed: attempts that raised, timed out or died. expired: jobs that ended by that. late_p50_us,
    late_p95_us, late_p99_us: start latency of first attempts; None if there were none. is_capped:
    there were more attempts than were read. others: attempts that neither succeeded nor failed, by
    outcome.
    """

    span_us: int
    ended: int
    done: int
    failed: int
    late_p50_us: int | None
    late_p99_us: int | None
    is_capped: bool = False
    late_p95_us: int | None = None
    expired: int = 0
    others: Mapping[str, int] = {}

    def per_s(self) -> float:
        """Return how many jobs per second were done."""
        return self.done * SECOND_US / self.span_us if self.span_us else 0.0


def throughput_of(attempts: Iterable[Attempt], span_us: int) -> Throughput:
    """Aggregate the attempts that ended in a period."""
    outcomes: Counter[str] = Counter()
    latencies: list[int] = []
    for attempt in attempts:
        outcomes[attempt.outcome] += 1
        latencies += start_latencies((attempt,))
    return throughput_from(outcomes, latencies, span_us)


def throughput_from(
    outcomes: Mapping[str, int], latencies: Iterable[int], span_us: int
) -> Throughput:
    """Return the throughput of a period from its outcomes and start latencies."""
    lates = sorted(latencies)
    return Throughput(
        span_us,
        ended=sum(outcomes.values()),
        done=outcomes.get("done", 0),
        failed=sum(outcomes.get(outcome, 0) for outcome in FAILED),
        late_p50_us=quantile(lates, 50),
        late_p99_us=quantile(lates, 99),
        late_p95_us=quantile(lates, 95),
        expired=outcomes.get("expired", 0),
        others={
            outcome: many for outcome, many in outcomes.items() if outcome not in ("done", *FAILED)
        },
    )


def start_latencies(attempts: Iterable[Attempt]) -> list[int]:
    """Return how late first attempts started, in microseconds."""
    return [
        max(0, attempt.started_us - attempt.due_us)
        for attempt in attempts
        if attempt.fence == 1 and attempt.started_us
    ]


def recent(engine: Engine, names: Sequence[str], *, most: int = ATTEMPTS_MAX) -> Throughput:
    """Aggregate the last seconds, or minutes if few jobs ended."""
    now_us = engine.time.latest_us()
    for span_us in WINDOWS_US:
        throughput = throughput_of(islice(ends_of(engine, names, now_us - span_us), most), span_us)
        if throughput.ended >= ENOUGH:
            break
    return throughput._replace(is_capped=throughput.ended >= most)


def quantile(ordered: Sequence[int], percent: int) -> int | None:
    """Return the value that `percent` of the values do not exceed."""
    if not ordered:
        return None
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
