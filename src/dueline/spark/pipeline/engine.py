"""Settings and steps of a pipeline."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from dueline.spark.pipeline.thresholds import OBJECTIVE, TARGET_US

STEPS: Final = ("bronze", "silver", "gold")

Say = Callable[[str], None]
"""Shows the progress of a step."""


class Step(NamedTuple):
    """The result of a step: numbers of rows and files that it wrote."""

    name: str
    rows: int
    files: int


class Check(NamedTuple):
    """The result of a check of tables.

    Attributes:
        is_good: Whether the table holds all that it should.
        is_behind: Whether it only lacks what was copied since it was last updated.
    """

    name: str
    is_good: bool
    finding: str
    is_behind: bool = False

    @property
    def verdict(self) -> str:
        """Return good, behind or bad."""
        return "good" if self.is_good else "behind" if self.is_behind else "bad"


class Settings(NamedTuple):
    """Settings of a pipeline.

    Attributes:
        store: URL of the store; empty if only tables are read or merged.
        queues: Queues to read; all if empty.
        target_us: Maximum start latency of a start that is on time.
        objective: Share of starts that should be on time.
    """

    store: str
    queues: Sequence[str] = ()
    target_us: int = TARGET_US
    objective: float = OBJECTIVE
