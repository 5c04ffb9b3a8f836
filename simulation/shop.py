"""Handlers of the jobs of a run."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from checker.journal import Event
from dueline.core.call_options import read_options
from dueline.core.engine import Engine
from dueline.core.job import Job
from dueline.core.retry import Retry
from dueline.tasks.handler import Context, Handler
from dueline.tasks.raised import Cancel, Snooze
from simulation.tape import Tape
from simulation.world import Died, Process, World

RETRY = Retry(attempts=3, base=1.0, cap=4.0)

TOOK_US = (20_000, 1_000, 150_000, 700_000, 2_500_000, 7_000_000, 14_000_000)
"""Durations of handlers; the last ones are longer than a lease."""

FATES = ("done", "done", "done", "done", "done", "done", "fails", "fails for good", "snoozes",
         "cancels", "kills", "kills")  # fmt: skip

IN_SECTIONS = {
    "in a section": "done",
    "fails in a section": "fails",
    "killed in a section": "kills",
}
"""What happens in a section that must not repeat, by the fate of the job."""

SPARED_FENCE = 3
"""From this claim on, no job snoozes or kills its process."""


class RunLog:
    """Event log of all processes; dead processes write nothing."""

    def __init__(self) -> None:
        """Start empty."""
        self.events: list[Event] = []
        self.acknowledged: set[str] = set()

    def of(self, process: Process) -> "Pen":
        """Return the writer of a process."""
        return Pen(self, process)


class Pen:
    """Writer of one process."""

    def __init__(self, diary: RunLog, process: Process) -> None:
        """Write to a log while a process lives."""
        self._append = diary.events.append
        self._acknowledged = diary.acknowledged
        self._process = process

    def write(self, *events: Event) -> None:
        """Record events."""
        if self._process.is_dead:
            raise Died
        for event in events:
            self._append(event)
            if event.f == "enqueue" and event.type == "ok":
                self._acknowledged.add(event.id)


def number_of(job: Job) -> int:
    """Return the number of a call from its row."""
    number: int = json.loads(job.body[bool(job.codec) :])[0]  # after the byte of a custom codec
    return number


def noted(job: Job) -> str:
    """Say what the judge has to know of a call: its number, and its unique key if it has one.

    Nothing for a step that waits for a signal, because no producer called it.
    """
    if not job.task:
        return ""
    rule = read_options(job.opts).unique if job.opts else None
    return f"{number_of(job)} {rule.key}" if rule else f"{number_of(job)}"


def eventer(world: World, process: Process) -> Callable[..., Event]:
    """Return a function that creates events of a process, at the store's time."""

    def event(**told: Any) -> Event:  # noqa: ANN401  (the fields of an Event)
        return Event(world.now_us, process.name, **told)

    return event


class Shop:
    """Environment of the handlers of one run."""

    def __init__(self, world: World, diary: RunLog) -> None:
        """Take the world, and the log of starts."""
        self._world = world
        self._diary = diary
        self.engine_here: Callable[[], Engine] = _no_engine

    def work(self, context: Context, number: int, took_us: int, fate: str, /) -> int:
        """Record the start, take some time, and end as drawn."""
        world = self._world
        process = world.here()
        told = {"id": context.job_id.hex(), "attempt": context.fence}
        Pen(self._diary, process).write(eventer(world, process)(type="ok", f="start", **told))
        world.say(f"starts {number}")
        world.sleep(took_us)
        if fate in IN_SECTIONS:
            with context.not_repeatable(), self._section(told):
                world.sleep(took_us)
                self._end(context, number, IN_SECTIONS[fate])
        if world.is_healed:
            return number
        self._end(context, number, fate)
        return number

    @contextmanager
    def _section(self, told: Mapping[str, Any]) -> Iterator[None]:
        """Record the body of a section, unless the process dies in it."""
        world, process = self._world, self._world.here()
        event, pen = eventer(world, process), Pen(self._diary, process)
        pen.write(event(type="invoke", f="section", **told))
        try:
            yield
        except Exception:
            pen.write(event(type="no", f="section", **told))
            raise
        pen.write(event(type="ok", f="section", **told))

    def _end(self, context: Context, number: int, fate: str) -> None:
        """Raise what a fate says, or kill the process."""
        world = self._world
        process = world.here()
        if fate == "fails" and context.attempt == 1:
            raise RuntimeError("fails once")
        if fate == "fails for good":
            raise RuntimeError("fails each time")
        if fate == "snoozes" and context.fence < SPARED_FENCE:
            raise Snooze(1)
        if fate == "cancels":
            raise Cancel("Nobody needs it.")
        if fate == "kills" and context.fence < SPARED_FENCE:
            world.tell(process.name, f"job {number}", "kills its process")
            world.kill(process)
            raise Died


_OPEN: list[Shop] = []


def shop_here() -> Shop:
    """Return the environment of the run."""
    return _OPEN[-1]


def work(context: Context, *call: Any) -> int:  # noqa: ANN401  (steps have more)
    """Run a job in the environment of the run."""
    return shop_here().work(context, *call)


def _no_engine() -> Engine:
    raise AssertionError("the run has no sections")


TASKS: Mapping[str, Handler] = {
    "work": Handler(
        work, name="work", retry=RETRY, timeout_us=None,
        engine_of=lambda: shop_here().engine_here(),
    )
}  # fmt: skip
"""Created once, because reading a signature takes longer than running many jobs."""


@contextmanager
def opened(shop: Shop) -> Iterator[None]:
    """Run the handlers in this environment."""
    _OPEN.append(shop)
    try:
        yield
    finally:
        _OPEN.pop()


def call_of(tape: Tape, number: int) -> bytes:
    """Draw what a job does, as arguments."""
    took_us = TOOK_US[tape.pick(len(TOOK_US))] if tape.pick(3) == 2 else TOOK_US[0]
    fate = FATES[tape.pick(len(FATES))]
    return json.dumps([number, took_us, fate]).encode()
