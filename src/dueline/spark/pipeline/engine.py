"""What a pipeline needs of its engine."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

from dueline.spark.pipeline.archive import Period
from dueline.spark.pipeline.audit_rules import Audited, Known, Promises
from dueline.spark.pipeline.dead_jobs import Death, Wanted
from dueline.spark.pipeline.replay import Chosen, Found, Order
from dueline.spark.pipeline.thresholds import OBJECTIVE, TARGET_US
from dueline.spark.writing.enqueue import Written

STEPS: Final = ("bronze", "silver", "gold")

Say = Callable[[str], None]
"""Shows the progress of a step."""


class Step(NamedTuple):
    """The result of a step: number of rows that it wrote, and of parts of its tables."""

    name: str
    rows: int
    parts: int


class Settings(NamedTuple):
    """Settings of a pipeline.

    Attributes:
        store: URL of the store.
        queues: Queues to read; all if empty.
        target_us: Maximum start latency of a start that is on time.
        objective: Share of starts that should be on time.
    """

    store: str
    queues: Sequence[str] = ()
    target_us: int = TARGET_US
    objective: float = OBJECTIVE


class TableEngine(Protocol):
    """Makes the tables of a pipeline, each step from the previous one."""

    def bronze(self, say: Say) -> Step:
        """Copy new rows of the history."""
        ...

    def silver(self, say: Say) -> Step:
        """Rebuild the days that new rows touch, one row for each attempt."""
        ...

    def gold(self, say: Say) -> Step:
        """Rebuild the counts of changed days, and the tables for operators."""
        ...

    def archive(self, place: Path, period: Period) -> None:
        """Write the copied rows of a period to Parquet files in a folder."""
        ...

    def deaths(self, wanted: Wanted) -> list[Death]:
        """Return the dead jobs that match."""
        ...

    def replayable(self, files: Sequence[Path], chosen: Chosen) -> Found:
        """Return the jobs that can be replayed, from files of bronze or of archives."""
        ...

    def replay(self, files: Sequence[Path], chosen: Chosen, order: Order, say: Say) -> Written:
        """Enqueue the jobs, each once under the order's name."""
        ...

    def audit(
        self,
        living: pa.Table | None,
        expected: pa.Table | None,
        promises: Promises,
        known: Known,
    ) -> Audited:
        """Audit the copied history.

        Args:
            living: Id and enqueue time of each job that has a row. None applies no rule on lost
                jobs.
            expected: Ids of all enqueued jobs. None if unknown.
            promises: Further rules.
            known: Facts about the store.
        """
        ...
