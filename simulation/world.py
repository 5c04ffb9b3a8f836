"""The world in which processes live: its time, who goes on when, how they die."""

from collections.abc import Callable
from hashlib import blake2b
from heapq import heappop, heappush
from typing import ParamSpec

from greenlet import getcurrent, greenlet

from simulation.faults import Fault
from simulation.tape import Tape

BEGIN_US = 1_800_000_000_000_000
"""When every life begins: in January 2027."""

STEPS_MAX = 400_000
"""No life takes more steps, unless somebody goes round in circles."""

LINES_MAX = 500
"""So many lines are kept before they go into the digest."""

P = ParamSpec("P")


class Died(BaseException):
    """Raised in what a process was doing when it was killed; nothing it does then happens."""


class Endless(Exception):
    """A life takes more steps than any life should."""


class Process:
    """Something that lives and may be killed, paused, cut off from the store, all at once.

    name: nobody else ever has it. asleep_us: until then nothing of it goes on. cut_us: until
    then the store cannot be reached. off_us: how far its wall clock is ahead. drift_ppm: how
    much too fast its clocks run. stood_us: how long they stood still.
    """

    def __init__(self, name: str, born_us: int) -> None:
        """Live, with nothing to do yet."""
        self.name = name
        self.born_us = born_us
        self.off_us = 0
        self.drift_ppm = 0
        self.stood_us = 0
        self.is_dead = False
        self.asleep_us = 0
        self.cut_us = 0
        self.fibers: list[Fiber] = []


class Fiber:
    """One thread of a process. ticket: what it waits for now; older waits are over."""

    __slots__ = ("greenlet", "is_over", "name", "process", "ticket", "waiters")

    def __init__(self, process: Process, name: str) -> None:
        """Belong to a process; `World.spawn` sets it going."""
        self.process = process
        self.name = name
        self.greenlet: greenlet
        self.ticket = 0
        self.is_over = False
        self.waiters: list[Fiber] = []


class World:
    """Leads all fibers through one life, one at a time, in the order of time."""

    def __init__(self, tape: Tape, *, trace: Callable[[str], object] | None = None) -> None:
        """Take the tape of choices, and where to tell each step, None for nowhere."""
        self.tape = tape
        self.now_us = BEGIN_US
        self.steps = 0
        self.calls = 0
        self.failures: list[tuple[str, BaseException]] = []
        """What no fiber should raise, and who did."""
        self.accidents: list[tuple[int, str, str]] = []
        """When, what, to whom; in words."""
        self.is_healed = False
        self.outage_us = 0
        self.on_death: Callable[[Process], object] = lambda _: None
        self.planned: dict[int, Fault] = {}
        """What befalls which call, beside what the tape says."""
        self.denials: list[str] = []
        """Who was told of a write that it does not hold, though it does."""
        self.landing = 0
        """How many calls may happen yet whose callers gave up."""
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
        """Tell whose fiber goes on now."""
        assert self.fiber is not None, "nobody goes on now"
        return self.fiber.process

    def sleep(self, span_us: int) -> None:
        """Let others go on for so long."""
        self._rest(self._going(), self.now_us + max(1, span_us))

    def wait(self, span_us: int | None) -> None:
        """Let others go on until `wake` is called for this fiber, or the time is over."""
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
        """Let others go on until a time, or until this fiber is woken."""
        fiber.ticket += 1
        heap = self._heap
        if (
            (not heap or at_us < heap[0][0])
            and at_us <= self._until_us
            and fiber.process.asleep_us <= at_us
            and self.steps < STEPS_MAX
        ):  # nobody else goes on before, nor can anybody wake it
            self._go_on(fiber, at_us)
            return
        self._count += 1
        heappush(heap, (at_us, self._count, fiber, fiber.ticket, None))
        self._leave(fiber)

    def _leave(self, fiber: Fiber) -> None:
        """Let others go on: whoever is next at once, and the hub where that takes more."""
        other = self._next()
        if other is None:
            self._hub.switch()
        elif other is not fiber:
            other.greenlet.switch()
        if fiber.process.is_dead:
            raise Died

    def _next(self) -> Fiber | None:
        """Begin the step of the fiber that is next; None if that is for the hub.

        The hub does what happens `later`, starts fibers, puts off those whose process stands
        still, and ends the life.
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
        """Take a step: it is a fiber's turn now."""
        self.now_us = at_us
        self.steps += 1
        fiber.ticket += 1
        lines = self._lines
        lines.append(f"{at_us} {fiber.name}")
        if len(lines) > LINES_MAX:
            self._digested()
        self.fiber = fiber

    def say(self, what: str) -> None:
        """Write down what happens: the same in every life of a seed."""
        self._lines.append(what)
        if self._trace is not None:
            who = self.fiber.name if self.fiber else "-"
            self._trace(f"{(self.now_us - BEGIN_US) / 1e6:12.6f} {who:14} {what}")

    def tell(self, who: str, name: str, what: str) -> None:
        """Write down an accident."""
        self.accidents.append((self.now_us, who, f"{name} {what}"))
        self.say(f"{who}: {name} {what}")

    # For anybody

    def wake(self, fiber: Fiber) -> None:
        """Let a fiber that waits go on now."""
        self._count += 1
        heappush(self._heap, (self.now_us, self._count, fiber, fiber.ticket, None))

    def later(self, span_us: int, act: Callable[[], object]) -> None:
        """Have something happen later, whoever is alive then."""
        self._count += 1
        heappush(self._heap, (self.now_us + span_us, self._count, None, 0, act))

    def process(self, name: str) -> Process:
        """Make a process."""
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
        """Kill a process: nothing of it goes on, not even what cleans up after it."""
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
        """List the processes that live."""
        return [process for process in self._processes if not process.is_dead]

    # The life

    def run(self, until_us: int, is_over: Callable[[], bool]) -> bool:
        """Go on until a time, or until something is so; tell whether it is.

        Args: is_over: only what happens `later` changes its answer.

        Raises: Endless: it takes far too many steps.
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
        """Let all be well from now on; who stands still does so to the end of that."""
        self.is_healed = True
        self.outage_us = 0
        for process in self._processes:
            process.cut_us = 0

    def close(self) -> None:
        """End everything that is still going on."""
        for process in self._processes:
            process.is_dead = True
            self._unwind(process)
        self._heap.clear()

    def digest(self) -> str:
        """Sum up everything that happened so far."""
        self._digested()
        return self._digest.hexdigest()

    def _digested(self) -> None:
        self._digest.update("\n".join(self._lines).encode())
        self._lines.clear()
