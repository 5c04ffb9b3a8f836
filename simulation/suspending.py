"""One run of a queue with durable functions, from a seed to a verdict.

Several processes enqueue functions of drawn calls, also of jobs and of other functions; others send
signals, and cancel some; and at the end all functions end. Effects are counted, not records.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, Final, NamedTuple, NoReturn, cast

from dueline.core.attempt import DurablePlace
from dueline.core.call_options import CallOptions
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.codec import JSON
from dueline.core.errors import Conflict, StoreUnavailable
from dueline.core.job import JobId, State
from dueline.durable import signals
from dueline.durable.calls import ChildCall
from dueline.durable.context import DurableContext
from dueline.durable.errors import CallFailed
from dueline.durable.handler import DurableHandler
from dueline.durable.log import OPENED, Entry, entries_of, entry_at, is_position, key_of
from dueline.jobs import results
from dueline.jobs.parked_functions import END
from dueline.jobs.queue import EnqueueRequest, Queues
from dueline.tasks.handler import Context
from dueline.tasks.raised import Cancel
from simulation.data import Data, kind_of
from simulation.judge import doubled
from simulation.life import Life, lived
from simulation.people import AHEAD_US, BETWEEN_US, Town, Version
from simulation.scenario import PRIORITIES, QUEUE, TENANTS, scenario_of
from simulation.shop import (
    FATES,
    RETRY,
    SPARED_FENCE,
    TASKS,
    TOOK_US,
    RunLog,
    Shop,
    shop_here,
)
from simulation.tape import Tape
from simulation.world import Died, Process, World

CALLS_MAX: Final = 5
SIGNALS: Final = ("go", "on")
SLEEPS_US: Final = (50_000, 2 * SECOND_US, 9 * SECOND_US)
TIMEOUTS_US: Final = (20 * SECOND_US, SECOND_US, 0)
AGAIN_US: Final = 2 * SECOND_US
MANY: Final = 1_000_000
KINDS: Final = ("step", "step", "sleep", "signal", "undone", "undone")
CALLING: Final = ("call", "gather")
CALLING_BIT: Final = 8
"""The bit of a seed that says whether functions call jobs."""

DEPTH_MAX: Final = 2
LIMITS: Final = (None, 1, 2)
ENDS: Final = ("done", "done", "wavers", "fails", "cancels")

Calls = Sequence[Sequence[Any]]
"""Kinds of calls, and their terms."""

SUSPENDED_VERDICTS: Final = (
    "done again", "flipped", "misread", "taken twice", "undone wrongly", "undone in disorder",
    "left behind",
)  # fmt: skip
"""Verdicts on such runs only: a step ran although its record was stored; a call gave two values, or
another end than its job had; a signal ended two waits; a compensation ran wrongly, twice, or not at
all; compensations ran in another order; a function has not ended."""


class _Effect(NamedTuple):
    """A call of a step or a compensation. place: in the order of all. value: of the step."""

    place: int
    job: str
    number: int
    value: int
    undoes: bool


class _Called(NamedTuple):
    """A call of a job, as a function makes it. task: name of the task. body: the arguments."""

    task: str
    body: Sequence[Any]

    def call(self) -> "_Called":
        """Return the planned call."""
        return self

    def child(self) -> ChildCall:
        """Return the call with encoded arguments."""
        opts = _OPTIONS if self.task == "saga" else b""
        bodies = [json.dumps(self.body).encode()]
        return ChildCall(
            self.task, lambda: EnqueueRequest(QUEUE, self.task, 0, bodies, opts=opts), int
        )


class _Ledger:
    """What the functions of a run have done and seen."""

    def __init__(self) -> None:
        """Start empty."""
        self.effects: list[_Effect] = []
        self.seen: dict[tuple[str, int, int], dict[str, None]] = {}
        """Values by job, generation of the record, and position."""
        self.plain: set[JobId] = set()
        """Jobs that have started and are no functions."""
        self.jobs: dict[int, JobId] = {}
        """Ids of the jobs that have started, by the numbers of their calls."""
        self.callers: dict[int, set[tuple[str, int]]] = defaultdict(set)
        """Functions that made a call, and the generations that own its position, by its number."""
        self.ends: set[tuple[JobId, str]] = set()
        """How called jobs ended, as the functions saw it that called them."""
        self.misread: list[str] = []
        self.again: list[str] = []
        self.places: dict[JobId, DurablePlace] = {}
        """Where the last generation of each function goes on."""
        self.stale: Counter[tuple[str, int]] = Counter()
        """Effects of claims after a later one has opened the log."""
        self.values = iter(range(1, MANY))


def _generation_of(place: DurablePlace) -> int:
    return place.generation


class _Program:
    """Runs the calls of one function, and notes their effects."""

    def __init__(
        self, world: World, data: Data, ledger: _Ledger, context: DurableContext, calls: Calls
    ) -> None:
        """Take the calls, as they were drawn."""
        self._world = world
        self._data = data
        self._ledger = ledger
        self._context = context
        self._job_id, self._job = context.job_id, context.job_id.hex()
        self._place = context._run.place  # noqa: SLF001  (the log that this run goes on with)
        self._calls = calls
        known = ledger.places.get(self._job_id, self._place)
        ledger.places[self._job_id] = max(known, self._place, key=_generation_of)

    def run(self) -> None:
        """Make all calls in their order."""
        position = 0
        for kind, *terms in self._calls:
            position += 1
            value = self._made(position, kind, *terms)
            at = (self._job, self._place.owner(position), position)
            self._ledger.seen.setdefault(at, {})[str(value)] = None
            position += kind in CALLING

    def _made(self, number: int, kind: str, *terms: Any) -> object:  # noqa: ANN401
        context = self._context
        if kind == "sleep":
            return context.sleep(terms[0] / SECOND_US)
        if kind == "signal":
            name, timeout_us = terms
            limit = timeout_us / SECOND_US if timeout_us else None
            return context.wait_signal(name, timeout=limit, default="in vain")
        if kind in CALLING:
            limit, children, end = terms
            caller = self._job, self._place.owner(number)
            for _, (called, *_) in children:
                self._ledger.callers[called].add(caller)
            return self._call(limit, [_Called(task, body) for task, body in children], end)
        took_us, fate = terms
        undo = partial(self._undo, number) if kind == "undone" else None
        step = partial(self._step, number, took_us, fate)
        return context.step(step, name=f"{kind} {number}", undo=undo)

    def _call(self, limit: int | None, children: Sequence[_Called], end: str) -> object:
        """Call jobs, and note how they ended; maybe let the error of one end the function."""
        context, errors = self._context, end == "caught"
        try:
            if len(children) > 1:
                ends = context.gather(children, limit=limit, return_exceptions=errors)
            else:
                ends = [context.call(children[0])]
        except CallFailed as error:
            self._ledger.ends.add((JobId(error.job_id), error.status))
            if not errors:
                raise
            return error
        for child, value in zip(children, ends, strict=True):
            self._note_end(child, value)
        return list(map(str, ends))

    def _note_end(self, child: _Called, value: object) -> None:
        ledger, number = self._ledger, child.body[0]
        if isinstance(value, CallFailed):
            ledger.ends.add((JobId(value.job_id), value.status))
        elif value == number and number in ledger.jobs:
            ledger.ends.add((ledger.jobs[number], "done"))
        else:
            ledger.misread.append(f"{self._job}: call {number} gave {value}")

    def _expect_none(self, key: str, what: str) -> None:
        """Note an effect that is recorded already.

        A worker whose machine was suspended may double one, since its clock stood still.
        """
        fence, place, store = self._context.fence, self._place, self._data.store
        opened = entry_at(store, self._job_id, place.generation, OPENED)
        if opened is not None and opened.head.fence > fence:
            self._ledger.stale[self._job, fence] += 1
            if self._ledger.stale[self._job, fence] == 1:
                return
        elif key not in entries_of(store, self._job_id, place):
            return
        self._ledger.again.append(f"{self._job}: {what} under claim {fence}")

    def _step(self, number: int, took_us: int, fate: str) -> int:
        ledger, world = self._ledger, self._world
        self._expect_none(key_of((number,)), f"step {number}")
        value = next(ledger.values)
        ledger.effects.append(_Effect(len(ledger.effects), self._job, number, value, undoes=False))
        world.say(f"runs step {number} of {self._job}")
        world.sleep(took_us)
        if not world.is_healed:
            self._meet(fate)
        return value

    def _undo(self, number: int, value: int) -> None:
        ledger = self._ledger
        self._expect_none(f"undo/{key_of((number,))}", f"compensation {number}")
        ledger.effects.append(_Effect(len(ledger.effects), self._job, number, value, undoes=True))
        self._world.say(f"undoes step {number} of {self._job}")
        self._world.sleep(TOOK_US[0])

    def _meet(self, fate: str) -> None:
        fence, world = self._context.fence, self._world
        if fate == "fails" and fence == 1:
            raise RuntimeError("fails once")
        if fate == "fails for good":
            raise RuntimeError("fails each time")
        if fate == "kills" and fence < SPARED_FENCE:
            world.kill(world.here())
            raise Died


class _SuspendingShop(Shop):
    """Runs durable functions beside plain jobs."""

    def __init__(self, world: World, diary: RunLog, data: Data, ledger: _Ledger) -> None:
        """Take the world, its event log, the data and the ledger."""
        super().__init__(world, diary)
        self._seen_by = world
        self._data = data
        self._ledger = ledger
        self.town: Town | None = None

    def work(self, context: Context, number: int, took_us: int, fate: str, /) -> int:
        """Run a called job."""
        self._ledger.plain.add(JobId(context.job_id))
        return self._start(context, number, took_us, fate)

    def _start(self, context: Context, number: int, took_us: int, fate: str) -> int:
        """Run a job, and let everybody know it."""
        job_id = JobId(context.job_id)
        self._ledger.jobs[number] = job_id
        assert self.town is not None
        if job_id not in self.town.known:
            self.town.known.append(job_id)
        return super().work(context, number, took_us, fate)

    def run(self, context: DurableContext, number: int, calls: Calls, end: str) -> int:
        """Run a durable function."""
        self._start(context, number, 0, "done")
        _Program(self._seen_by, self._data, self._ledger, context, calls).run()
        world = self._seen_by
        if end == "fails" or (end == "wavers" and not world.is_healed and world.tape.pick(2)):
            raise ValueError("It ends with an error.")
        if end == "cancels":
            raise Cancel("Nobody needs it.")
        return number


def _shop() -> _SuspendingShop:
    return cast("_SuspendingShop", shop_here())


def _saga(context: DurableContext, number: int, calls: Calls, end: str) -> int:
    """Run a durable function in the environment of the run."""
    return _shop().run(context, number, calls, end)


def _queues() -> Queues:
    town = _shop().town
    assert town is not None
    return Queues(town.engine_here())


def _no_coroutines() -> NoReturn:
    raise AssertionError("functions of the simulation are plain ones")


_TASKS: Final = {
    **TASKS,
    "saga": DurableHandler(
        _saga, queues=_queues, shared=_no_coroutines, name="saga", retry=RETRY, timeout_us=None
    ),
}
_OPTIONS: Final = CallOptions(durable=DurablePlace()).to_bytes()


class _Drawing:
    """Draws durable functions."""

    def __init__(self, tape: Tape, *, calls: bool) -> None:
        """Take the choices, and whether functions call jobs."""
        self._tape = tape
        self._kinds = KINDS + CALLING if calls else KINDS
        self._numbers = iter(range(1, MANY))

    def function(self, depth: int = 0) -> Sequence[Any]:
        """Draw the arguments of a function; lower choices give simpler ones."""
        tape = self._tape
        calls = [self._call(depth) for _ in range(1 + tape.pick(CALLS_MAX >> depth))]
        end = ENDS[tape.pick(len(ENDS))]
        return [next(self._numbers), calls, end]

    def _child(self, depth: int) -> Sequence[Any]:
        """Draw a called job: its task and its arguments."""
        if depth < DEPTH_MAX and self._tape.pick(3) == 2:
            return "saga", self.function(depth + 1)
        took_us, fate = self._work()
        return "work", [next(self._numbers), took_us, fate]

    def _work(self) -> Sequence[Any]:
        tape = self._tape
        took_us = TOOK_US[tape.pick(len(TOOK_US))] if tape.pick(3) == 2 else TOOK_US[0]
        return took_us, FATES[tape.pick(len(FATES))]

    def _call(self, depth: int) -> Sequence[Any]:
        tape = self._tape
        kind = self._kinds[tape.pick(len(self._kinds))]
        if kind in CALLING:
            children = [
                self._child(depth) for _ in range(1 if kind == "call" else 2 + tape.pick(3))
            ]
            return (
                kind,
                LIMITS[tape.pick(len(LIMITS))],
                children,
                ("caught", "raised")[tape.pick(2)],
            )
        if kind == "sleep":
            return kind, SLEEPS_US[tape.pick(len(SLEEPS_US))]
        if kind == "signal":
            name = SIGNALS[tape.pick(len(SIGNALS))]
            return kind, name, TIMEOUTS_US[tape.pick(len(TIMEOUTS_US))]
        return kind, *self._work()


class _People:
    """Calls functions, sends them signals, and at the end signals until all have ended."""

    def __init__(self, world: World, data: Data, ledger: _Ledger, *, calls: bool) -> None:
        """Take the world, whose tape has the choices, the data and the ledger.

        calls: functions call jobs.
        """
        self._ledger = ledger
        self._world = world
        self._tape = world.tape
        self._data = data
        self._drawing = _Drawing(world.tape, calls=calls)
        self._numbers = iter(range(1, MANY))
        self._acting: list[Process] = []  # they call functions, or retry them

    def begin(self, town: Town) -> None:
        """Start everybody."""
        _shop().town = town
        town.versions = (Version(_TASKS),)
        for _ in range(min(2, town.scenario.producers)):
            town.start_person("caller", self._call)
        town.start_person("signaller", self._signal)
        town.start_person("closer", self._close)
        if town.scenario.has_operator:
            self._acting.append(town.start_operator())
        town.look_after_workers()

    def _call(self, town: Town, queues: Queues) -> None:
        tape, world = self._tape, self._world
        self._acting.append(world.here())
        for _ in range(1 + tape.pick(3)):
            ahead_us = AHEAD_US[tape.pick(len(AHEAD_US))]
            due_us = world.now_us + ahead_us if ahead_us else None
            priority = PRIORITIES[tape.pick(len(PRIORITIES))]
            tenant = TENANTS[tape.pick(len(TENANTS))]
            bodies = [json.dumps(self._drawing.function()).encode()]
            town.put(
                queues,
                EnqueueRequest(QUEUE, "saga", 0, bodies, due_us, priority, tenant, _OPTIONS),
            )
            world.sleep(BETWEEN_US[tape.pick(len(BETWEEN_US))])

    def _signal(self, town: Town, queues: Queues) -> None:
        while not self._world.is_healed:
            self._world.sleep(AGAIN_US)
            for job_id in self._functions(town):
                signal = self._drawn(SIGNALS[self._tape.pick(len(SIGNALS))])
                if self._tape.pick(2):
                    with suppress(Conflict, StoreUnavailable):
                        signals.send(queues.engine, job_id, signal)

    def _close(self, town: Town, queues: Queues) -> None:
        while not (self._world.is_healed and all(process.is_dead for process in self._acting)):
            self._world.sleep(SECOND_US)
        town.finish_calls(queues)
        while not _is_over(self._data, town.known):
            self._world.sleep(AGAIN_US)
            functions = self._functions(town)
            waiting = [each for each in functions if _awaits(self._ledger, self._data, each)]
            for job_id, name in product(waiting, SIGNALS):
                town.insist(partial(signals.send, queues.engine, job_id, self._drawn(name)))

    def _functions(self, town: Town) -> list[JobId]:
        return [job_id for job_id in dict.fromkeys(town.known) if job_id not in self._ledger.plain]

    def _drawn(self, name: str) -> signals.Sent:
        number = str(next(self._numbers))
        return signals.Sent(name, number, JSON, number.encode())


def live(
    seed: int, given: Sequence[int] | None = None, *, trace: Callable[[str], object] | None = None
) -> Life:
    """Run one seed; the same seed, or the same tape with it, gives the same run.

    Its verdicts are those of a queue's run, and SUSPENDED_VERDICTS.
    """
    tape = Tape(seed, given)
    scenario = scenario_of(seed, tape)
    settings = replace(scenario.settings, keep_us=DAY_US, deliver="at_least_once")
    scenario = scenario._replace(is_stepped=bool(seed >> 4 & 1), settings=settings)
    world = World(tape, trace=trace)
    data = Data(world, kind_of(seed >> 4, is_stepped=scenario.is_stepped))
    ledger = _Ledger()

    def judge(diary: RunLog, faults: dict[str, list[str]]) -> None:
        town = _shop().town
        assert town is not None
        faults |= _judged(ledger, data, dict.fromkeys(town.known), diary.acknowledged)
        faults["misread"] = ledger.misread + _misread(ledger, data, diary)
        # A retried function makes the call anew that failed last, which is another job.
        faults["doubled"] = doubled(
            diary.events, lambda number: max(1, len(ledger.callers[number]))
        )
        for verdict in [verdict for verdict, stories in faults.items() if not stories]:
            del faults[verdict]

    people = _People(world, data, ledger, calls=bool(seed >> CALLING_BIT & 1))
    return lived(
        world, scenario, data, people.begin, seed=seed, judge=judge,
        open_shop=lambda world, diary: _SuspendingShop(world, diary, data, ledger),
    )  # fmt: skip


def _state_of(data: Data, job_id: JobId) -> str:
    """Return how a function ended; "" if it has not."""
    result = results.read(data.store, job_id)
    if result is not None:
        return result.state
    rows = data.rows({job_id.hex()})
    return next(("dead" for row in rows if row.id == job_id and row.state == State.DEAD), "")


def _awaits(ledger: _Ledger, data: Data, job_id: JobId) -> bool:
    """Return whether a function waits for a signal; another one is not to be woken by one."""
    place = ledger.places.get(job_id, DurablePlace())
    keys = entries_of(data.store, job_id, place).keys()
    return any(key.endswith("!wait") and key.removesuffix("!wait") not in keys for key in keys)


def _is_over(data: Data, called: Iterable[JobId]) -> bool:
    return all(_state_of(data, job_id) for job_id in called)


# The verdict


def _judged(
    ledger: _Ledger, data: Data, called: Iterable[JobId], acknowledged: Collection[str]
) -> dict[str, list[str]]:
    """Compare what functions have done with their logs after the run.

    A function whose caller died in its call may begin when nobody sends signals any more.
    """
    faults: dict[str, list[str]] = {verdict: [] for verdict in SUSPENDED_VERDICTS}
    faults["done again"] = ledger.again
    faults["flipped"] = [
        f"{job}: call {number} gave {', '.join(values)}"
        for (job, _, number), values in ledger.seen.items()
        if len(values) > 1
    ]
    for job_id in called:
        entries = entries_of(data.store, job_id, ledger.places.get(job_id, DurablePlace()))
        state = _state_of(data, job_id)
        if not state:
            if job_id.hex() in acknowledged:
                faults["left behind"].append(job_id.hex())
            continue
        sources = [
            entry.head.source
            for entry in entries.values()
            if entry.head.kind == "signal" and entry.head.source
        ]
        if len(set(sources)) < len(sources):
            faults["taken twice"].append(f"{job_id.hex()}: {sources}")
        faults["undone wrongly"] += _undone_wrongly(ledger, job_id, entries, state)
        faults["undone in disorder"] += _disorder(ledger, job_id, entries)
    return faults


def _misread(ledger: _Ledger, data: Data, diary: RunLog) -> list[str]:
    """Return ends of called jobs that their callers saw otherwise; a retried job ends again."""
    revived = {event.id for event in diary.events if event.f == "carry"}
    return [
        f"{job_id.hex()} is {_state_of(data, job_id)}, its caller saw {status}"
        for job_id, status in sorted(ledger.ends)
        if job_id.hex() not in revived and _state_of(data, job_id) != status
    ]


def _undone(ledger: _Ledger, job_id: JobId) -> list[int]:
    job = job_id.hex()
    return [effect.number for effect in ledger.effects if effect.undoes and effect.job == job]


def _undone_wrongly(
    ledger: _Ledger, job_id: JobId, entries: dict[str, Entry], state: str
) -> list[str]:
    """Return compensations of a success, and steps of a failure that were not undone."""
    undone = _undone(ledger, job_id)
    if state == "done":
        return [f"{job_id.hex()} is done, and undone: {undone}"] if undone else []
    due = {
        int(key)
        for key, entry in entries.items()
        if is_position(key) and entry.head.undo and entry.head.state == "done"
    }
    if due == set(undone) or (END not in entries and not undone and not due):
        return []
    return [f"{job_id.hex()} is {state}: undone {sorted(set(undone))}, not {sorted(due)}"]


def _disorder(ledger: _Ledger, job_id: JobId, entries: dict[str, Entry]) -> list[str]:
    """Return the compensations that first ran in another order than the last step first."""
    order = list(dict.fromkeys(_undone(ledger, job_id)))
    if order == sorted(order, reverse=True):
        return []
    return [f"{job_id.hex()}: {order}, log {list(entries)}"]
