"""What a pipeline asks of its engine."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from dueline.spark.pipeline.archive import Period
from dueline.spark.pipeline.audit_rules import Audited, Known, Promises
from dueline.spark.pipeline.dead_jobs import Death, Wanted
from dueline.spark.pipeline.replay import Chosen, Found, Order
from dueline.spark.pipeline.thresholds import OBJECTIVE, TARGET_US
from dueline.spark.writing.enqueue import Written

STEPS: Final = ("bronze", "silver", "gold")

Say = Callable[[str], None]
"""Shows how far a step has come."""


class Step(NamedTuple):
    """What a step did. rows: those that it wrote; parts: how many parts of its tables."""

    name: str
    rows: int
    parts: int


class Settings(NamedTuple):
    """What the tables of a pipeline depend on.

    store: its address. queues: those to be read, all where there is none. target_us: how late
    is in time; objective: the share of starts that should be.
    """

    store: str
    queues: Sequence[str] = ()
    target_us: int = TARGET_US
    objective: float = OBJECTIVE


class TableEngine(Protocol):
    """Makes the tables of a pipeline, each step from those before; what is made stays made."""

    def bronze(self, say: Say) -> Step:
        """Copy what is new in the history."""
        ...

    def silver(self, say: Say) -> Step:
        """Make anew the days that what is new touches, a row an attempt."""
        ...

    def gold(self, say: Say) -> Step:
        """Count the days that were made anew, and make the tables for operators."""
        ...

    def archive(self, place: Path, period: Period) -> None:
        """Write the rows of a period, as they were copied, to Parquet files in a folder."""
        ...

    def deaths(self, wanted: Wanted) -> list[Death]:
        """Tell which jobs died, of those that are wanted."""
        ...

    def replayable(self, files: Sequence[Path], chosen: Chosen) -> Found:
        """Tell which jobs can be replayed, by files of bronze or of archives."""
        ...

    def replay(self, files: Sequence[Path], chosen: Chosen, order: Order, say: Say) -> Written:
        """Enqueue them, each once under the order's name."""
        ...

    def audit(
        self,
        living: Sequence[tuple[str, int]] | None,
        expected: Sequence[str] | None,
        promises: Promises,
        known: Known,
    ) -> Audited:
        """Audit the history that was copied.

        Args:
          living: The jobs that have a row, each its id and the time when it was enqueued. None to
            apply no rule on lost jobs.
          expected: The ids of all jobs that were enqueued. None where they are not known.
          promises: Further rules.
          known: Facts about the store.
        """
        ...
