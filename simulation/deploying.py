"""One run of a queue during a deployment, from a seed to a verdict (C19, O9).

Workers of several versions know different tasks and codecs, or take other arguments. Operators
cancel running jobs by force, and retry jobs by hand.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from checker.journal import Event
from dueline.core.errors import BadInput, Conflict, NotFound, StoreUnavailable
from dueline.core.job import JobId
from dueline.core.lane import TaskKey
from dueline.jobs.queue import EnqueueRequest, Queues
from dueline.tasks.handler import Context, Handler
from dueline.tasks.payload_codecs import Payloads
from simulation.data import Data, kind_of
from simulation.life import Life, lived
from simulation.people import AGAIN_US, AHEAD_US, BETWEEN_US, Town, Version
from simulation.scenario import PRIORITIES, QUEUE, TENANTS, scenario_of
from simulation.shop import RETRY, RunLog, call_of, work
from simulation.tape import Tape
from simulation.world import World

CODEC: Final = 64
JSON_FIRST: Final = b"\0"
OPERATORS: Final = 2
TAKEN: Final = 3
"""Number of arguments that every version takes; some jobs have one more."""

LONGER_EVERY: Final = 2
"""One in so many calls has an argument that the first versions cannot take."""

DEPLOYED_VERDICTS: Final = ("in vain", "after its end")
"""Verdicts on such runs only: a worker that cannot run a job claims it although it was moved, or
runs it; a job starts again after a cancel by force.
"""


def _same(body: bytes) -> bytes:
    return body


def _new(name: str, payloads: Payloads) -> Handler:
    def call(context: Context, *args: object) -> int:
        return work(context, *args[:TAKEN])

    return Handler(call, name=name, retry=RETRY, timeout_us=None, payloads=payloads)


def _strict(context: Context, number: int, took_us: int, fate: str) -> int:
    return work(context, number, took_us, fate)


OLD: Final = {"work": Handler(_strict, name="work", retry=RETRY, timeout_us=None)}


def _versions() -> Sequence[Version]:
    payloads = Payloads()
    payloads.add("plain", CODEC, encode=_same, decode=_same)
    tasks = {name: _new(name, payloads) for name in ("work", "fresh")}
    return (
        Version(OLD),
        Version({"work": tasks["work"]}, (CODEC,)),
        Version({**OLD, "fresh": _new("fresh", Payloads())}),
        Version(tasks, (CODEC,)),
    )


VERSIONS: Final = _versions()
_REFUSE: Final = (OLD["work"].arguments.signature,)


def _longer(body: bytes) -> bytes:
    return body[:-1] + b', "more"]'


class _Orders:
    """What operators asked for: promised ends of jobs, and retries."""

    def __init__(self, world: World, data: Data) -> None:
        self._world = world
        self._data = data
        self.promised: dict[str, tuple[int, int]] = {}  # the last claim then, and the time
        self.retried_us: defaultdict[str, list[int]] = defaultdict(list)

    def operate(self, town: Town, queues: Queues) -> None:
        """Cancel and retry jobs until the faults end."""
        world, tape = self._world, self._world.tape
        while not world.is_healed:
            world.sleep(BETWEEN_US[tape.pick(len(BETWEEN_US))])
            if not town.known:
                continue
            job_id = town.known[tape.pick(len(town.known))]
            try:
                self._act(queues, job_id, tape.pick(4))
            except (Conflict, NotFound, BadInput):
                pass
            except StoreUnavailable:
                world.sleep(AGAIN_US)

    def _act(self, queues: Queues, job_id: JobId, act: int) -> None:
        if act == 0:
            self.retried_us[job_id.hex()].append(self._world.now_us)
            queues.retry(job_id)
        elif act == 1:
            priority = PRIORITIES[self._world.tape.pick(len(PRIORITIES))]
            queues.change(job_id, priority=priority)
        elif not queues.cancel(job_id, by_force=True):
            fences = (row.fence for row in self._data.rows({job_id.hex()}))
            self.promised[job_id.hex()] = max(fences, default=0), self._world.now_us

    def broken(self, events: Sequence[Event]) -> list[str]:
        """Return starts of jobs under claims that were made after a promised end."""
        claimed = {
            event.id: event.attempt
            for event in events
            if event.f == "claim" and event.t <= self.promised.get(event.id, (0, 0))[1]
        }
        faults = []
        for event in events:
            if event.f != "start" or event.id not in self.promised:
                continue
            fence, promised_us = self.promised[event.id]
            is_retried = any(us <= event.t for us in self.retried_us[event.id])
            if event.attempt > max(fence, claimed.get(event.id, 0)) and not is_retried:
                faults.append(f"{event.id} at {event.t}, after {promised_us}")
        return faults


def in_vain(
    events: Sequence[Event], needs: Mapping[int, str], versions: Mapping[str, Version]
) -> list[str]:
    """Return claims and starts of jobs by workers that cannot run them.

    A claim is one only after another such worker has moved the job: under a later fence, since a
    machine that is suspended may report an earlier claim after that.
    """
    of_job = {
        event.id: needs[int(event.note)] for event in events if event.f == "enqueue" and event.note
    }
    faults: list[str] = []
    moved: dict[str, int] = {}  # under which fence
    for event in events:
        version = versions.get(event.proc)
        if version is None or event.id not in of_job or of_job[event.id] in version.known:
            continue
        told = f"{event.proc} at {event.t}: {event.f} of {event.id}"
        if event.f == "carry" and event.type == "ok":
            moved[event.id] = event.attempt
        elif event.f == "start" or (
            event.f == "claim" and event.type == "ok" and not event.note
            and event.attempt > moved.get(event.id, event.attempt)
        ):  # fmt: skip
            faults.append(told)
    return faults


def live(
    seed: int, given: Sequence[int] | None = None, *, trace: Callable[[str], object] | None = None
) -> Life:
    """Run one seed; the same seed, or the same tape with it, gives the same run.

    Its verdicts are those of a queue's run, and DEPLOYED_VERDICTS.
    """
    tape = Tape(seed, given)
    scenario = scenario_of(seed, tape)
    world = World(tape, trace=trace)
    data = Data(world, kind_of(seed, is_stepped=scenario.is_stepped))
    orders = _Orders(world, data)
    towns: list[Town] = []
    needs: dict[int, str] = {}
    numbers = iter(range(1, 1_000_000))

    def begin(town: Town) -> None:
        towns.append(town)
        town.versions = VERSIONS
        for _ in range(scenario.producers):
            town.start_person("caller", call)
        for _ in range(OPERATORS if scenario.has_operator else 0):
            town.start_person("operator", orders.operate)
        town.look_after_workers()

    def call(town: Town, queues: Queues) -> None:
        for _ in range(scenario.calls):
            task, codec = ("work", "fresh")[tape.pick(2)], (0, CODEC)[tape.pick(2)]
            first = JSON_FIRST if codec else b""
            batch = [next(numbers) for _ in range(1 + tape.pick(2))]
            bodies = [call_of(tape, number) for number in batch]
            key = TaskKey(task, codec)
            if batch[0] % LONGER_EVERY == 0:
                bodies = list(map(_longer, bodies))
            if batch[0] % LONGER_EVERY == 0 and task in OLD:
                key = key._replace(refused=_REFUSE, until_us=sys.maxsize)
            needs.update(dict.fromkeys(batch, key.text))
            bodies = [first + body for body in bodies]
            ahead_us = AHEAD_US[tape.pick(len(AHEAD_US))]
            due_us = world.now_us + ahead_us if ahead_us else None
            priority = PRIORITIES[tape.pick(len(PRIORITIES))]
            tenant = TENANTS[tape.pick(len(TENANTS))]
            request = EnqueueRequest(QUEUE, task, codec, bodies, due_us, priority, tenant)
            town.put(queues, request)
            world.sleep(BETWEEN_US[tape.pick(len(BETWEEN_US))])

    def judge(diary: RunLog, faults: dict[str, list[str]]) -> None:
        verdicts = {
            "in vain": in_vain(diary.events, needs, towns[0].version_of),
            "after its end": orders.broken(diary.events),
        }
        faults |= {verdict: stories for verdict, stories in verdicts.items() if stories}

    return lived(world, scenario, data, begin, seed=seed, judge=judge)
