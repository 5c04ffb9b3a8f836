"""The threads of consumers, as fibers."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from dueline.streams import consumer_threads
from simulation import green
from simulation.world import World

PAUSE_S = 1.0
"""Time that an idle thread waits; shorter waits only make runs longer."""


class Thread(green.Thread):
    """A fiber that others can join, with a timeout."""

    def is_alive(self) -> bool:
        """Return whether it runs."""
        return self._fiber is not None and not self._fiber.is_over

    def join(self, timeout: float | None = None) -> None:
        """Wait until it ends, or the timeout."""
        if self._fiber is not None and not self._fiber.is_over:
            green.wait_among(self._fiber.waiters, timeout)


class Threads(green.Threads):
    """Stands in for the module `threading`."""

    Thread = Thread


@contextmanager
def planted(world: World) -> Iterator[None]:
    """Replace threads by fibers in consumers."""
    place = vars(consumer_threads)
    before = {name: place[name] for name in ("PAUSE_S", "PAUSE_UNHEARD_S", "Signal")}
    try:
        place |= {"PAUSE_S": PAUSE_S, "PAUSE_UNHEARD_S": PAUSE_S, "Signal": green.Event}
        place |= {"threading": Threads, "time": green.Times}
        with green.planted(world):
            yield
    finally:
        place |= {"threading": threading, "time": time, **before}
