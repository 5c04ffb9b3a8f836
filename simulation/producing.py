"""Producers that are killed and replaced."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from dueline.core.clock import SECOND_US
from simulation.world import Process, World

T = TypeVar("T")


class Left(Generic[T]):
    """Remaining work of a producer, outside its process, such as on disk."""

    def __init__(self, calls: int, unsure: Iterable[T] = ()) -> None:
        """Take the number of calls, and the sent jobs with an unknown outcome."""
        self.calls = calls
        self.unsure = list(unsure)
        self.is_over = False


class Producers(Generic[T]):
    """Starts producers; where one was killed, another does the rest.

    running: how many have something to do yet.
    """

    def __init__(self, world: World, start: Callable[[Left[T]], Process]) -> None:
        """Take the function that starts a producer in its own process."""
        self.running = 0
        self._world = world
        self._start = start

    def begin(self, left: Left[T]) -> None:
        """Start a producer, and check every second whether another must replace it."""
        self.running += 1
        process = self._start(left)

        def look() -> None:
            if left.is_over:
                self.running -= 1
            elif process.is_dead:
                self.running -= 1
                self.begin(Left(left.calls, left.unsure))
            else:
                self._world.later(SECOND_US, look)

        self._world.later(SECOND_US, look)
