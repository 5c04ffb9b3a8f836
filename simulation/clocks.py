"""The clocks of a world."""

from simulation.world import Process, World


class StoreClock:
    """Clock of the store: the world's time."""

    def __init__(self, world: World) -> None:
        """Take the world."""
        self._world = world

    def wall_us(self) -> int:
        """Return the time in microseconds UTC."""
        return self._world.now_us

    def monotonic_us(self) -> int:
        """Return the time."""
        return self._world.now_us

    def sleep(self, seconds: float) -> None:
        """Sleep; other fibers continue."""
        self._world.sleep(round(seconds * 1e6))


class ProcessClock:
    """The clocks of a process's machine.

    The wall clock is off by `Process.off_us`, which may change at any time. The monotonic clock
    runs `Process.drift_ppm` too fast, and stops while the machine is suspended.
    """

    def __init__(self, world: World, process: Process) -> None:
        """Take the world, and the process of the clocks."""
        self._world = world
        self._process = process

    def wall_us(self) -> int:
        """Read the wall clock: microseconds UTC."""
        return self._world.now_us + self._process.off_us

    def monotonic_us(self) -> int:
        """Read the monotonic clock."""
        ran_us = self._world.now_us - self._process.created_us - self._process.stood_us
        return 1_000_000 + ran_us + ran_us * self._process.drift_ppm // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Sleep; other fibers continue."""
        self._world.sleep(round(seconds * 1e6))
