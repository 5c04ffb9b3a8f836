"""A process's connection to the store, and faults of its calls."""

from collections.abc import Callable
from typing import TypeVar

from dueline.core.errors import StoreUnavailable, Unknown
from simulation.faults import (
    DELAYS_US,
    DULL_SPAN,
    JUMPS_US,
    OVERTAKING,
    SKIPS,
    SPANS_US,
    TIMEOUTS_US,
    Fault,
)
from simulation.world import Died, Fiber, Process, World

Answer = TypeVar("Answer")

FAST_US = DELAYS_US[0]

_BEFORE = (Fault.PAUSED_BEFORE, Fault.SUSPENDED, Fault.JUMP)


class _Pending:
    """A call without a response. skips: number of calls of its fiber before it takes effect."""

    def __init__(self, fiber: Fiber | None, skips: int, land: Callable[[], object]) -> None:
        self.fiber = fiber
        self.skips = skips
        self.land = land


class Link:
    """Executes the calls of one process: each may be late, lost, or have no response.

    faults: the faults of this run; may be empty. Each call makes one choice, and more only if it
    has a fault.
    """

    def __init__(self, world: World, process: Process, faults: tuple[Fault, ...]) -> None:
        """Take the world, the calling process, and its faults."""
        self._world = world
        self.process = process
        self._faults = faults
        self._pending: list[_Pending] = []
        self._overtakes = Fault.LATE in faults

    def deny(self, what: str) -> None:
        """Record that a write was reported as rejected although it took effect."""
        self._world.say(f"denied: {what}")
        self._world.denials.append(f"{self.process.name}: {what}")

    def call(
        self,
        name: str,
        apply: Callable[[], Answer],
        *,
        lands: bool = True,
        decides: bool = False,
    ) -> Answer:
        """Execute a call at the store, after some time.

        Args:
          lands: whether it may take effect after its caller gave up.
          decides: whether it is a conditional write, which may overtake its retry.
        """
        world, process = self._world, self.process
        if process.is_dead:
            raise Died
        world.calls += 1
        if world.planned and (planned := world.planned.get(world.calls)):
            return self._befall(planned, name, apply, lands=lands)
        if world.is_healed:
            world.sleep(FAST_US)
            answer = self._happen(apply)
            world.sleep(FAST_US)
            return answer
        if world.now_us < max(process.cut_us, world.outage_us):
            self._give_up(Fault.DROPPED, name, is_told=False)
        if decides and self._overtakes and world.tape.is_rare(OVERTAKING):
            return self._befall(Fault.OVERTAKES, name, apply, lands=lands)
        choice = world.tape.pick(DULL_SPAN)
        if 0 < choice <= len(self._faults):
            return self._befall(self._faults[choice - 1], name, apply, lands=lands)
        if choice:
            world.sleep(DELAYS_US[choice & 7])
            answer = self._happen(apply)
            world.sleep(DELAYS_US[(choice >> 3) & 7])
            return answer
        world.sleep(FAST_US)
        answer = self._happen(apply)
        world.sleep(FAST_US)
        return answer

    def _happen(self, apply: Callable[[], Answer]) -> Answer:
        """Execute a call, and just before it those that overtake it."""
        if self._pending:
            fiber = self._world.fiber
            for late in [late for late in self._pending if late.fiber is fiber]:
                if late.skips:
                    late.skips -= 1
                else:
                    self._pending.remove(late)
                    late.land()
        return apply()

    def _befall(
        self, fault: Fault, name: str, apply: Callable[[], Answer], *, lands: bool
    ) -> Answer:
        """Inject a fault into a call."""
        world, process = self._world, self.process
        world.tell(process.name, name, fault.value)
        match fault:
            case Fault.REFUSED:
                world.sleep(FAST_US)
                raise StoreUnavailable(f"{name} was refused")
            case Fault.DROPPED:
                self._give_up(fault, name)
            case Fault.UNANSWERED:
                world.sleep(FAST_US)
                self._happen(apply)
                self._give_up(fault, name)
            case Fault.OVERTAKES:
                if lands:
                    skips = SKIPS[world.tape.pick(len(SKIPS))]
                    self._pending.append(_Pending(world.fiber, skips, self._land(name, apply)))
                self._give_up(fault, name)
            case Fault.LATE:
                if lands:
                    self._land(name, apply)
                self._give_up(fault, name)
            case Fault.CUT:
                process.cut_us = world.now_us + self._span()
                self._give_up(fault, name)
            case Fault.OUTAGE:
                world.outage_us = world.now_us + self._span()
                self._give_up(fault, name)
            case Fault.KILLED_BEFORE | Fault.KILLED_AFTER | Fault.KILLED_LATE:
                self._die(fault, name, apply, lands=lands)
        if fault in _BEFORE:
            self._stand_still(fault)
        world.sleep(FAST_US)
        answer = self._happen(apply)
        if fault is Fault.PAUSED_AFTER:
            self._stand_still(fault)
        world.sleep(FAST_US)
        return answer

    def _give_up(self, fault: Fault, name: str, *, is_told: bool = True) -> None:
        """Wait for a response that does not arrive."""
        world = self._world
        world.sleep(TIMEOUTS_US[world.tape.pick(len(TIMEOUTS_US)) if is_told else 0])
        raise Unknown(f"{name} {fault.value}")

    def _span(self) -> int:
        return SPANS_US[self._world.tape.pick(len(SPANS_US))]

    def _land(self, name: str, apply: Callable[[], object]) -> Callable[[], object]:
        """Let a call take effect later, whichever processes live then.

        Returns: a function that lets it take effect earlier; it does so once.
        """
        world, who = self._world, self.process.name
        has_landed = False

        def land() -> None:
            nonlocal has_landed
            if not has_landed:
                has_landed = True
                world.say(f"arrives: {name} of {who}")
                world.landing -= 1
                apply()

        world.landing += 1
        world.later(self._span(), land)
        return land

    def _stand_still(self, fault: Fault) -> None:
        world, process = self._world, self.process
        if fault is Fault.JUMP:
            process.off_us += JUMPS_US[world.tape.pick(len(JUMPS_US))]
            return
        span_us = self._span()
        process.asleep_us = world.now_us + span_us
        if fault is Fault.SUSPENDED:
            process.stood_us += span_us

    def _die(self, fault: Fault, name: str, apply: Callable[[], object], *, lands: bool) -> None:
        world = self._world
        if fault is Fault.KILLED_AFTER:
            world.sleep(FAST_US)
            apply()
        if fault is Fault.KILLED_LATE and lands:
            self._land(name, apply)
        world.kill(self.process)
        raise Died
