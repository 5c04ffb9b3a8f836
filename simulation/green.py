"""Fibers in place of the module `threading`.

The worker's modules use threads, events and locks through their name `threading`, and the
heartbeat reads `time`; `planted` replaces both during a run. Fibers switch only where they wait,
so a lock that is not held during a wait is always free.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from dueline.limits import permits
from dueline.worker import (
    context_controls,
    heartbeat,
    interrupt,
    prefetch,
    progress_reports,
    settlements,
    thread_runner,
)
from simulation.clocks import ProcessClock
from simulation.world import Fiber, World

_PLACES = (
    heartbeat,
    context_controls,
    prefetch,
    interrupt,
    permits,
    progress_reports,
    settlements,
    thread_runner,
)


class Event:
    """An event that fibers wait for."""

    def __init__(self) -> None:
        """Start cleared."""
        self._is_set = False
        self._waiters: list[Fiber] = []

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it; all waiting fibers continue."""
        self._is_set = True
        waiters, self._waiters = self._waiters, []
        for fiber in waiters:
            _world().wake(fiber)

    def clear(self) -> None:
        """Clear it."""
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, or the timeout."""
        world = _world()
        if self._is_set:
            world.sleep(1)  # to go round in circles takes time, too
            return True
        wait_among(self._waiters, timeout)
        return self._is_set


class Lock:
    """A lock that fibers wait for."""

    def __init__(self) -> None:
        """Start unlocked."""
        self._is_held = False
        self._waiters: list[Fiber] = []

    def __enter__(self) -> bool:
        while self._is_held:
            world = _world()
            assert world.fiber is not None, "only fibers wait"
            self._waiters.append(world.fiber)
            world.wait(None)
        self._is_held = True
        return True

    def __exit__(self, *_error: object) -> None:
        self._is_held = False
        if self._waiters:
            _world().wake(self._waiters.pop(0))


class Condition:
    """A condition; its lock is always free, because no fiber waits while holding it."""

    def __init__(self) -> None:
        """Start without waiting fibers."""
        self._waiters: list[Fiber] = []

    def __enter__(self) -> Literal[True]:
        return True

    def __exit__(self, *_error: object) -> None:
        """Nothing was held."""

    def wait(self, timeout: float | None = None) -> None:
        """Wait until `notify`, or the timeout."""
        wait_among(self._waiters, timeout)

    def notify(self, count: int = 1) -> None:
        """Wake the first waiting fibers."""
        for _ in range(min(count, len(self._waiters))):
            _world().wake(self._waiters.pop(0))

    def notify_all(self) -> None:
        """Wake all waiting fibers."""
        self.notify(len(self._waiters))


class Thread:
    """A fiber of the process that starts it."""

    def __init__(
        self,
        *,
        target: Callable[..., object],
        name: str,
        args: tuple[object, ...] = (),
        daemon: bool = True,
    ) -> None:
        """Take the function that `start` runs."""
        del daemon
        self._target = target
        self._args = args
        self._name = name
        self._fiber: Fiber | None = None

    def start(self) -> None:
        """Begin."""
        world = _world()
        process = world.here()
        name = f"{process.name}/{self._name.removeprefix('dueline-')}"
        self._fiber = world.spawn(process, name, self._target, *self._args)

    def join(self) -> None:
        """Wait until the fiber ends."""
        world = _world()
        fiber = self._fiber
        if fiber is not None and not fiber.is_over:
            assert world.fiber is not None, "only fibers wait"
            fiber.waiters.append(world.fiber)
            world.wait(None)


class Threads:
    """Stands in for the module `threading`."""

    Event = Event
    Lock = Lock
    Condition = Condition
    Thread = Thread
    get_ident = staticmethod(threading.get_ident)


class Times:
    """Stands in for the module `time`."""

    @staticmethod
    def monotonic() -> float:
        """Return the clock of the current fiber's process, in seconds."""
        world = _world()
        return ProcessClock(world, world.here()).monotonic_us() / 1e6


_PRESENT: list[World] = []


def wait_among(waiters: list[Fiber], timeout: float | None) -> None:
    """Wait until this fiber is woken, or the timeout."""
    world = _world()
    assert world.fiber is not None, "only fibers wait"
    waiters.append(world.fiber)
    try:
        world.wait(_us(timeout))
    finally:
        if world.fiber in waiters:
            waiters.remove(world.fiber)


def _world() -> World:
    return _PRESENT[-1]


def _us(timeout: float | None) -> int | None:
    return None if timeout is None else round(timeout * 1e6)


@contextmanager
def planted(world: World) -> Iterator[None]:
    """Replace threads by fibers in the worker's modules."""
    _PRESENT.append(world)
    try:
        for place in _PLACES:
            vars(place)["threading"] = Threads
        vars(heartbeat)["time"] = Times
        yield
    finally:
        for place in _PLACES:
            vars(place)["threading"] = threading
        vars(heartbeat)["time"] = time
        _PRESENT.pop()
