"""One run, from a seed to a verdict."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from checker.journal import Event
from dueline.core.clock import SECOND_US
from simulation.data import Data, kind_of
from simulation.green import planted
from simulation.people import Town
from simulation.scenario import Scenario, scenario_of
from simulation.shop import RunLog, Shop, opened, shop_here
from simulation.tape import Tape
from simulation.verdict import Judged, judged, raised_by, stalled
from simulation.world import BEGIN_US, Endless, World

DRAINED_WITHIN_US = 300 * SECOND_US
"""Maximum time from the end of the faults until everything has ended."""


@dataclass(frozen=True, slots=True)
class Life:
    """Result of a seed. faults: descriptions by verdict."""

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


def live(
    seed: int, given: Sequence[int] | None = None, *, trace: Callable[[str], object] | None = None
) -> Life:
    """Run one seed; the same seed, or the same tape with it, gives the same run."""
    tape = Tape(seed, given)
    scenario = scenario_of(seed, tape)
    world = World(tape, trace=trace)
    data = Data(world, kind_of(seed, is_stepped=scenario.is_stepped))
    return lived(world, scenario, data, _begin, seed=seed)


def _begin(town: Town) -> None:
    for _ in range(town.scenario.producers):
        town.start_producer()
    if town.scenario.has_operator:
        town.start_operator()
    town.look_after_workers()


def lived(
    world: World,
    scenario: Scenario,
    data: Data,
    begin: Callable[[Town], None],
    *,
    seed: int,
    judge: Callable[[RunLog, dict[str, list[str]]], None] = lambda _diary, _faults: None,
    open_shop: Callable[[World, RunLog], Shop] = Shop,
) -> Life:
    """Run from the start to the verdict, and close the data.

    Args: judge: decides on the faults. open_shop: creates the environment of the jobs.
    """
    diary = RunLog()
    world.on_death = lambda process: diary.events.append(
        Event(world.now_us, process.name, "ok", "crash")
    )
    town = Town(world, scenario, diary, data.reach, seed=seed)
    with planted(world), opened(open_shop(world, diary)):
        shop_here().engine_here = town.engine_here
        try:
            begin(town)
            is_drained = lead(world, scenario.lasts_us, lambda: _has_ended(town, data, diary))
            judgement = judged(data, diary, scenario)
            if not is_drained:
                judgement.faults.setdefault("stalled", []).append(stalled(data, diary))
            judge(diary, judgement.faults)
        except Endless:
            judgement = Judged({}, {"endless": ["The run takes too many steps."]})
        finally:
            world.close()
            data.close()
    return told_of(world, judgement.counts, judgement.faults, seed=seed, lasts_us=scenario.lasts_us)


def told_of(
    world: World,
    counts: Mapping[str, int],
    faults: dict[str, list[str]],
    *,
    seed: int,
    lasts_us: int,
) -> Life:
    """Return the result of a closed run; unexpected exceptions are faults."""
    if world.denials:
        faults["denied"] = list(world.denials)
    for who, error in world.failures:
        faults.setdefault("broken", []).append(raised_by(who, error))
    simulated_us = world.now_us - BEGIN_US
    return Life(
        seed, world.digest(), world.steps, world.calls, simulated_us, simulated_us - lasts_us,
        world.tape.taken, counts, faults, world.accidents,
    )  # fmt: skip


def lead(world: World, lasts_us: int, has_ended: Callable[[], bool]) -> bool:
    """Run with faults, then without; return whether everything has ended."""
    is_drained = False

    def look() -> None:
        nonlocal is_drained
        is_drained = has_ended()
        world.later(SECOND_US // 2, look)

    look()
    if not world.run(BEGIN_US + lasts_us, lambda: is_drained):
        world.heal()
        world.run(world.now_us + DRAINED_WITHIN_US, lambda: is_drained)
    return is_drained


def _has_ended(town: Town, data: Data, diary: RunLog) -> bool:
    if town.world.is_healed:
        data.list_dead()
    return not (town.is_calling() or town.world.landing or data.living(diary))
