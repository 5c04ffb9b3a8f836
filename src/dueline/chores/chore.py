"""What a chore is."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dueline.queue import Queues
from dueline.store import Put


class Report(NamedTuple):
    """What one step of a chore did.

    acts: what it changed. after: where the next step goes on at once; None: the round is over.
    puts: what is to be noted, by the monitor and only while it holds the office.
    """

    acts: int = 0
    after: str | None = None
    puts: Sequence[Put] = ()


Step = Callable[[Queues, str | None], Report]
"""One short step: the engine, which has store, clock and ids; and where to go on."""


class Chore(NamedTuple):
    """Something to be done again and again. every_us: from the end of a round to the next."""

    name: str
    every_us: int
    step: Step
