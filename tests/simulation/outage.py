"""A store that is away for a while."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from dueline.core.clock import SECOND_US
from dueline.core.errors import StoreUnavailable
from simulation.link import Link
from simulation.world import Process, World

Answer = TypeVar("Answer")


@dataclass
class Outage:
    """Until when the store is away, and how long each call is in vain until it fails."""

    until_us: int = 0
    slow_us: int = 0

    def begin(self, world: World, span_s: float, *, slow_s: float) -> None:
        """Let the store be away for so long from now on."""
        self.until_us = world.now_us + round(span_s * SECOND_US)
        self.slow_us = round(slow_s * SECOND_US)


class Away(Link):
    """The way to it."""

    def __init__(self, world: World, process: Process, outage: Outage) -> None:
        """Take whose way it is, and when the store is away."""
        super().__init__(world, process, ())
        self._outage = outage
        self._here = world

    def call(
        self,
        name: str,
        apply: Callable[[], Answer],
        *,
        lands: bool = True,
        decides: bool = False,
    ) -> Answer:
        """Have a call happen, or fail."""
        if self._here.now_us < self._outage.until_us:
            self._here.sleep(self._outage.slow_us)
            raise StoreUnavailable(f"{name}: the store is away")
        return super().call(name, apply, lands=lands, decides=decides)
