"""Maintenance tasks: periodic work on which correctness never depends."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dueline.core.engine import Engine
from dueline.core.store import Put


class StepResult(NamedTuple):
    """What one step of a maintenance task did.

    acts: number of changes. after: where the next step continues; None: the round is over.
    puts: notes to write; only the maintenance leader writes them. rest_us: how long the next step
    of the round waits, to limit the load. warnings: lines to log. skews_us: how late the jobs of
    schedules were that it stored.
    """

    acts: int = 0
    after: str | None = None
    puts: Sequence[Put] = ()
    rest_us: int = 0
    warnings: Sequence[str] = ()
    skews_us: Sequence[int] = ()


Step = Callable[[Engine, str | None], StepResult]
"""One short step: takes the engine, and where to continue."""


class MaintenanceTask(NamedTuple):
    """A task that the maintenance leader repeats. every_us: from the end of a round to the next."""

    name: str
    every_us: int
    step: Step
