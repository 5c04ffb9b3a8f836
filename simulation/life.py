"""One life, from a seed to a verdict."""

import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dueline.clock import SECOND_US
from dueline.diary import Event
from dueline.finishing import stored
from dueline.history import attempts
from dueline.job import Job, JobId, State
from dueline.recipes import results
from dueline.store import Store
from dueline.stores.memory import MemoryStore
from dueline.stores.memory_cluster import Cluster
from dueline.stores.memory_steps import SteppedMemoryStore
from simulation.clocks import StoreClock
from simulation.green import planted
from simulation.judge import Final, Recorded, judge, number_in
from simulation.link import Link
from simulation.people import Town
from simulation.scenario import QUEUE, Scenario, scenario_of
from simulation.shop import Diary, Shop, opened
from simulation.tape import Tape
from simulation.wires import stepped, wired
from simulation.world import BEGIN_US, Endless, World

DRAINED_WITHIN_US = 300 * SECOND_US
"""Once everything is well again, so long may it take until every job has ended."""

PREFETCH = 1000


@dataclass(frozen=True, slots=True)
class Life:
    """What came of a seed. faults: stories by verdict, only those there are."""

    seed: int
    digest: str
    steps: int
    calls: int
    simulated_us: int
    drained_us: int
    tape: Sequence[int]
    counts: Mapping[str, int]
    faults: Mapping[str, Sequence[str]]
    accidents: Sequence[tuple[int, str, str]]


class _Data:
    """The store of a life, as clients reach it, and as it is looked into at the end."""

    def __init__(self, world: World, scenario: Scenario) -> None:
        clock = StoreClock(world)
        self.cluster = Cluster()
        self.store: Store = MemoryStore(clock)
        self.reach: Callable[[Link], Store] = lambda link: wired(self.store, link)
        if scenario.is_stepped:
            self.store = SteppedMemoryStore(clock, cluster=self.cluster, remember=False)
            self.reach = lambda link: stepped(self.cluster, link, clock)

    def rows(self) -> Iterator[Job]:
        """Read all rows, listed or not, without asking anybody."""
        if isinstance(self.store, MemoryStore):
            for lane in self.store._rows.values():  # noqa: SLF001  (nobody may be asked)
                yield from lane.values()
        else:
            for found in self.cluster.rows.values():
                for one in found.values():
                    yield one.stub.target if one.stub else one.job


def live(
    seed: int, given: Sequence[int] | None = None, *, trace: Callable[[str], object] | None = None
) -> Life:
    """Lead one life; the same seed, or the same tape with it, is the same life."""
    tape = Tape(seed, given)
    scenario = scenario_of(seed, tape)
    world = World(tape, trace=trace)
    diary = Diary()
    world.on_death = lambda process: diary.events.append(
        Event(world.now_us, process.name, "ok", "crash")
    )
    data = _Data(world, scenario)
    town = Town(world, scenario, diary, data.reach, seed=seed)
    with planted(world), opened(Shop(world, diary)):
        try:
            is_drained = _lead(world, town, data, diary)
            faults = _judged(data, diary, scenario)
            if not is_drained:
                faults.faults.setdefault("stalled", []).append(_stalled(data, diary))
        except Endless:
            faults = _Judged({}, {"endless": ["It takes far too many steps."]})
        finally:
            world.close()
    for who, error in world.failures:
        faults.faults.setdefault("broken", []).append(_told(who, error))
    return Life(
        seed, world.digest(), world.steps, world.calls, world.now_us - BEGIN_US,
        world.now_us - BEGIN_US - scenario.lasts_us, tape.taken, faults.counts, faults.faults,
        world.accidents,
    )  # fmt: skip


class _Judged(NamedTuple):
    counts: Mapping[str, int]
    faults: dict[str, list[str]]


def _lead(world: World, town: Town, data: _Data, diary: Diary) -> bool:
    """Lead a life through its accidents, then let all be well; tell whether it was drained."""
    scenario = town.scenario
    for _ in range(scenario.producers):
        town.start_producer()
    if scenario.has_operator:
        town.start_operator()
    town.look_after_workers()
    is_drained = False

    def look() -> None:
        nonlocal is_drained
        is_drained = not (town.producing or world.landing or _living(data, diary))
        world.later(SECOND_US // 2, look)

    look()
    if not world.run(BEGIN_US + scenario.lasts_us, lambda: is_drained):
        world.heal()
        world.run(world.now_us + DRAINED_WITHIN_US, lambda: is_drained)
    return is_drained


def _living(data: _Data, diary: Diary) -> list[Job]:
    """List the rows of jobs that were acknowledged, and have not ended.

    One that was not may be left in a lane that nobody looks at, until its call is repeated.
    """
    return [
        row for row in data.rows() if row.lane.queue == QUEUE and row.id.hex() in diary.acknowledged
    ]


def _judged(data: _Data, diary: Diary, scenario: Scenario) -> _Judged:
    rows: dict[str, Job] = {}
    for row in data.rows():
        rows[row.id.hex()] = row
    finals: dict[str, Final] = {}
    tried = {event.id for event in diary.events if event.f == "settle"}
    started = {event.id for event in diary.events if event.f == "start"}
    for event in diary.events:
        job = event.id
        if event.f != "enqueue" or job in finals:
            continue
        finals[job] = _final(data.store, job, rows.get(job))
        if finals[job].state == "gone" and not scenario.settings.keep_us and job in tried:
            # Nothing was to be kept of it: that somebody tried to end it must do.
            ended = Final("done", number_in(event)) if job in started else Final("cancelled")
            finals[job] = ended
    recorded = [
        Recorded(one.job, one.fence, one.outcome)
        for one in attempts(data.store, QUEUE, scenario.settings.shards)
    ]
    report = judge(diary.events, finals, recorded, prefetch=PREFETCH)
    faults = {verdict: list(told) for verdict, told in report.faults.items() if told}
    if scenario.settings.is_once:
        twice = _twice(diary)
        if twice:
            faults["twice"] = twice
    return _Judged(report.counts, faults)


def _final(store: Store, job: str, row: Job | None) -> Final:
    """Say how a job ended, as its queue would."""
    if row is not None:
        if row.outcome:
            outcome = stored(row).finish.outcome
            return Final(outcome.state, int(outcome.value) if outcome.value else None)
        return Final("dead" if row.state == State.DEAD else "alive")
    kept = results.read(store, JobId(bytes.fromhex(job)))
    if kept is None:
        return Final("gone")
    return Final(kept.state, int(kept.value) if kept.value else None)


def _twice(diary: Diary) -> list[str]:
    """Pick the jobs of a queue that delivers at most once which were started more often."""
    revived = {event.id for event in diary.events if event.f == "carry"}
    starts = Counter(event.id for event in diary.events if event.f == "start")
    return [job for job, count in starts.items() if count > 1 and job not in revived]


def _stalled(data: _Data, diary: Diary) -> str:
    rows = _living(data, diary)
    if not rows:
        return "Somebody is still calling."
    row = rows[0]
    told = f"at {(row.at_us - BEGIN_US) / 1e6:.6f} s, claim {row.fence}, state {row.state}"
    return f"{len(rows)} jobs have not ended, the first of them {row.id.hex()}: {told}, {row.lane}"


def _told(who: str, error: BaseException) -> str:
    lines = traceback.format_exception(error)
    return f"{who}: {''.join(lines)[-3000:]}"
