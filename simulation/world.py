"""The world of a run: its time, and the order and deaths of its processes."""

from collections.abc import Callable
from hashlib import blake2b
from heapq import heappop, heappush
from typing import ParamSpec

from greenlet import getcurrent, greenlet

from simulation.faults import Fault
from simulation.tape import Tape

BEGIN_US = 1_800_000_000_000_000
"""Start of every run, in January 2027."""

STEPS_MAX = 400_000
"""Maximum number of steps; more mean an endless loop."""

LINES_MAX = 500
"""Number of lines that are collected before they are added to the digest."""

P = ParamSpec("P")


class Died(BaseException):
    """Raised in a killed process; nothing that it does afterwards takes effect."""


class Endless(Exception):
    """The run takes too many steps."""


class Process:
    """A process that may be killed, paused, or cut off from the store.

    name: unique. asleep_us: end of its pause. cut_us: end of its disconnection. off_us: offset of
    its wall clock. drift_ppm: drift of its clocks. stood_us: time for which they were stopped.
    """

    def __init__(self, name: str, created_us: int) -> None:
        """Start without fibers."""
        self.name = name
        self.created_us = created_us
        self.off_us = 0
        self.drift_ppm = 0
        self.stood_us = 0
        self.is_dead = False
        self.asleep_us = 0
        self.cut_us = 0
        self.fibers: list[Fiber] = []


class Fiber:
    """One thread of a process. ticket: its current wait; older waits are over."""

    __slots__ = ("greenlet", "is_over", "name", "process", "ticket", "waiters")

    def __init__(self, process: Process, name: str) -> None:
        """Belong to a process; `World.spawn` starts it."""
        self.process = process
        self.name = name
        self.greenlet: greenlet
        self.ticket = 0
        self.is_over = False
        self.waiters: list[Fiber] = []


class World:
    """Runs all fibers of one run, one at a time, in the order of time."""

    def __init__(self, tape: Tape, *, trace: Callable[[str], object] | None = None) -> None:
        """Take the tape of choices, and a function that receives each step, or None."""
        self.tape = tape
        self.now_us = BEGIN_US
        self.steps = 0
        self.calls = 0
        self.failures: list[tuple[str, BaseException]] = []
        """Unexpected exceptions, by fiber."""
        self.accidents: list[tuple[int, str, str]] = []
        """Injected faults: time, process and description."""
        self.is_healed = False
        self.outage_us = 0
        self.on_death: Callable[[Process], object] = lambda _: None
        self.planned: dict[int, Fault] = {}
        """Faults of given calls, in addition to those of the tape."""
        self.denials: list[str] = []
        """Writes that were reported as rejected although they took effect."""
        self.landing = 0
        """Number of pending calls whose callers gave up."""
        self.fiber: Fiber | None = None
        self._hub = getcurrent()
        self._heap: list[tuple[int, int, Fiber | None, int, Callable[[], object] | None]] = []
        self._count = 0
        self._until_us = 0
        self._digest = blake2b(digest_size=8)
        self._lines: list[str] = []
        self._trace = trace
        self._processes: list[Process] = []

    # For fibers

    def here(self) -> Process:
        """Return the process of the current fiber."""
        assert self.fiber is not None, "no fiber is running"
        return self.fiber.process

    def sleep(self, span_us: int) -> None:
        """Sleep; other fibers continue."""
        self._rest(self._going(), self.now_us + max(1, span_us))

    def wait(self, span_us: int | None) -> None:
        """Wait until `wake` is called for this fiber, or the timeout."""
        fiber = self._going()
        if span_us is not None:
            self._rest(fiber, self.now_us + max(1, span_us))
            return
        fiber.ticket += 1
        self._leave(fiber)

    def _going(self) -> Fiber:
        fiber = self.fiber
        assert fiber is not None, "only fibers wait"
        if fiber.process.is_dead:
            raise Died
        return fiber

    def _rest(self, fiber: Fiber, at_us: int) -> None:
        """Wait until a time, or until this fiber is woken."""
        fiber.ticket += 1
        heap = self._heap
        if (
            (not heap or at_us < heap[0][0])
            and at_us <= self._until_us
            and fiber.process.asleep_us <= at_us
            and self.steps < STEPS_MAX
        ):  # no other fiber runs before, so none can wake it
            self._go_on(fiber, at_us)
            return
        self._count += 1
        heappush(heap, (at_us, self._count, fiber, fiber.ticket, None))
        self._leave(fiber)

    def _leave(self, fiber: Fiber) -> None:
        """Switch to the next fiber, or to the hub if more is needed."""
        other = self._next()
        if other is None:
            self._hub.switch()
        elif other is not fiber:
            other.greenlet.switch()
        if fiber.process.is_dead:
            raise Died

    def _next(self) -> Fiber | None:
        """Begin the step of the next fiber; None if the hub is needed.

        The hub runs scheduled functions, starts fibers, delays those of paused processes, and ends
        the run.
        """
        heap = self._heap
        while heap:
            at_us, _, fiber, ticket, _ = heap[0]
            if fiber is None:
                return None
            if fiber.ticket == ticket and not fiber.is_over:
                break
            heappop(heap)
        else:
            return None
        if (
            not fiber.greenlet
            or fiber.process.asleep_us > at_us
            or at_us > self._until_us
            or self.steps >= STEPS_MAX
        ):
            return None
        heappop(heap)
        self._go_on(fiber, at_us)
        return fiber

    def _go_on(self, fiber: Fiber, at_us: int) -> None:
        """Count a step of a fiber."""
        self.now_us = at_us
        self.steps += 1
        fiber.ticket += 1
        lines = self._lines
        lines.append(f"{at_us} {fiber.name}")
        if len(lines) > LINES_MAX:
            self._digested()
        self.fiber = fiber

    def say(self, what: str) -> None:
        """Record a step; all runs of a seed record the same."""
        self._lines.append(what)
        if self._trace is not None:
            who = self.fiber.name if self.fiber else "-"
            self._trace(f"{(self.now_us - BEGIN_US) / 1e6:12.6f} {who:14} {what}")

    def tell(self, who: str, name: str, what: str) -> None:
        """Record an injected fault."""
        self.accidents.append((self.now_us, who, f"{name} {what}"))
        self.say(f"{who}: {name} {what}")

    # For anybody

    def wake(self, fiber: Fiber) -> None:
        """Wake a waiting fiber."""
        self._count += 1
        heappush(self._heap, (self.now_us, self._count, fiber, fiber.ticket, None))

    def later(self, span_us: int, act: Callable[[], object]) -> None:
        """Schedule a function, independent of any process."""
        self._count += 1
        heappush(self._heap, (self.now_us + span_us, self._count, None, 0, act))

    def process(self, name: str) -> Process:
        """Create a process."""
        process = Process(name, self.now_us)
        self._processes.append(process)
        return process

    def spawn(
        self, process: Process, name: str, act: Callable[P, object], *args: P.args, **kw: P.kwargs
    ) -> Fiber:
        """Start a fiber of a process."""
        fiber = Fiber(process, name)

        def lead() -> None:
            try:
                if not process.is_dead:
                    act(*args, **kw)
            except Died:
                pass
            except BaseException as error:  # noqa: BLE001  (told at the end of the life)
                self.failures.append((name, error))
            fiber.is_over = True
            process.fibers.remove(fiber)
            for waiter in fiber.waiters:
                self.wake(waiter)

        fiber.greenlet = greenlet(lead, self._hub)
        process.fibers.append(fiber)
        self.wake(fiber)
        return fiber

    def kill(self, process: Process) -> None:
        """Kill a process: none of its code continues, not even cleanup code."""
        process.is_dead = True
        self.on_death(process)
        self.later(0, lambda: self._unwind(process))

    def _unwind(self, process: Process) -> None:
        for fiber in list(process.fibers):
            self.fiber = fiber
            if fiber.greenlet:
                fiber.greenlet.throw(Died)
            elif not fiber.is_over:  # it was not started yet
                fiber.is_over = True
                process.fibers.remove(fiber)
            self.fiber = None

    def alive(self) -> list[Process]:
        """Return the live processes."""
        return [process for process in self._processes if not process.is_dead]

    # The life

    def run(self, until_us: int, is_over: Callable[[], bool]) -> bool:
        """Run until a time or a condition; return whether the condition holds.

        Args: is_over: the condition; only scheduled functions change its result.

        Raises: Endless: the run takes too many steps.
        """
        assert getcurrent() is self._hub
        heap = self._heap
        self._until_us = until_us
        while heap and heap[0][0] <= until_us:
            if self.failures or is_over():
                break
            at_us, count, fiber, ticket, act = heappop(heap)
            if fiber is None:
                self.now_us = max(at_us, self.now_us)
                assert act is not None
                self.fiber = None
                act()
                continue
            if fiber.ticket != ticket or fiber.is_over:
                continue
            if fiber.process.asleep_us > at_us:
                heappush(heap, (fiber.process.asleep_us, count, fiber, ticket, None))
                continue
            if self.steps >= STEPS_MAX:
                raise Endless
            self._go_on(fiber, at_us)
            fiber.greenlet.switch()
        self.fiber = None
        return is_over()

    def heal(self) -> None:
        """End all faults; pauses that have begun last until their end."""
        self.is_healed = True
        self.outage_us = 0
        for process in self._processes:
            process.cut_us = 0

    def close(self) -> None:
        """End all fibers."""
        for process in self._processes:
            process.is_dead = True
            self._unwind(process)
        self._heap.clear()

    def digest(self) -> str:
        """Return the digest of all steps so far."""
        self._digested()
        return self._digest.hexdigest()

    def _digested(self) -> None:
        self._digest.update("\n".join(self._lines).encode())
        self._lines.clear()
