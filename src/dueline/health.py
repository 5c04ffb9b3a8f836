"""What is wrong with a store."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dueline.clock import SECOND_US
from dueline.queue import Queues
from dueline.recipes.registry import Presence, present
from dueline.span import span_text
from dueline.stats import count

SKEW_US_MAX = 30 * SECOND_US
"""A machine whose clock is so far from the store's is to be put right."""

SCAN_MAX = 10_000
"""Jobs of one queue that are read for the check whether somebody serves them."""

Verdict = Literal["good", "warning", "bad"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. advice: what to do; empty where it is good."""

    name: str
    verdict: Verdict
    finding: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What a look at the store found. store: what it says of itself."""

    checks: Sequence[Check]
    store: Mapping[str, str]
    workers: Sequence[Presence]

    def is_bad(self) -> bool:
        """Tell whether something has to be put right."""
        return any(check.verdict == "bad" for check in self.checks)


def examine(queues: Queues) -> Report:
    """Look at the store, the clocks, the workers, and whether every queue is served."""
    store = queues.store.describe()
    workers = present(queues.store)
    checks = [
        *_of_store(store),
        _clock("this machine", queues.time.skew_us()),
        *(_clock(f"worker {one.worker}", one.clock_skew_us) for one in workers),
        _alive(workers),
        *_unserved(queues, workers),
    ]
    return Report(checks, store, workers)


def _of_store(store: Mapping[str, str]) -> Iterator[Check]:
    if "schema" in store:
        yield Check("schema", "good", f"version {store['schema']}")
    finding = store.get("integrity")
    if finding == "ok":
        yield Check("integrity", "good", "no damage found")
    elif finding is not None:
        yield Check("integrity", "bad", finding, "Stop all workers and restore a backup.")


def _clock(whose: str, skew_us: int) -> Check:
    name = f"clock of {whose}"
    away = f"{span_text(skew_us)} {'ahead of' if skew_us > 0 else 'behind'} the store's"
    if abs(skew_us) >= SKEW_US_MAX:
        return Check(name, "bad", away, "Have the machine keep time (NTP).")
    return Check(name, "good", "in step with the store's" if abs(skew_us) < SECOND_US else away)


def _alive(workers: Sequence[Presence]) -> Check:
    held, slots = sum(one.held for one in workers), sum(one.slots for one in workers)
    finding = f"alive: {len(workers)}, jobs held: {held}, slots: {slots}"
    return Check("workers", "good", finding)


def _unserved(queues: Queues, workers: Sequence[Presence]) -> Iterator[Check]:
    for name in queues.catalog.names():
        counts = count(queues, name, workers, most=SCAN_MAX)
        if counts.ready and not counts.workers:
            least = "at least " if counts.is_capped else ""
            yield Check(
                f"queue {name}",
                "warning",
                f"no live worker serves it; jobs that are ready: {least}{counts.ready}",
                f"Start one: dueline worker MODULE:APP -q {name}",
            )
