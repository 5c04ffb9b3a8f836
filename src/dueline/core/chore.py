"""What a chore is."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dueline.core.engine import Engine
from dueline.core.store import Put


class Report(NamedTuple):
    """What one step of a chore did.

    acts: what it changed. after: where the next step goes on; None: the round is over.
    puts: what is to be noted, by the monitor and only while it holds the office. rest_us: how
    long the next step of the round waits, so that a long round is no load. warnings: what is to
    be logged, a line each.
    """

    acts: int = 0
    after: str | None = None
    puts: Sequence[Put] = ()
    rest_us: int = 0
    warnings: Sequence[str] = ()


Step = Callable[[Engine, str | None], Report]
"""One short step: the engine, which has store, clock and ids; and where to go on."""


class Chore(NamedTuple):
    """Something to be done again and again. every_us: from the end of a round to the next."""

    name: str
    every_us: int
    step: Step
