"""One life of a stream, from a seed to a verdict."""

from collections.abc import Callable, Sequence

from dueline.clock import SECOND_US
from simulation.life import Life
from simulation.streams.data import Data
from simulation.streams.ledger import Ledger
from simulation.streams.scenario import Scenario, scenario_of
from simulation.streams.threads import planted
from simulation.streams.town import Town
from simulation.tape import Tape
from simulation.verdict import told
from simulation.world import BEGIN_US, Endless, World

DRAINED_WITHIN_US = 300 * SECOND_US
"""Once everything is well again, so long may it take until every group has read everything."""

SHOWN_MAX = 5

STREAM_VERDICTS = ("missed", "unproduced", "order", "unclosed", "owners", "epoch", "back", "mark")
"""What can be wrong with a stream's life only; "stale" and "doubled" are so with a queue's, too."""


def live(
    seed: int, given: Sequence[int] | None = None, *, trace: Callable[[str], object] | None = None
) -> Life:
    """Lead one life; the same seed, or the same tape with it, is the same life.

    Its verdicts, in words: missed (an acknowledged event that some group was not handed),
    unproduced and doubled (products that share a transaction with their position), order (of the
    events that one producer gave one key), unclosed (handed from beyond the mark), owners (two
    that believe to hold a shard beyond doubt), epoch and back and mark (what only grows did
    not), stale (a checkpoint moves under an epoch before that of batches), unexpected, broken,
    endless.
    """
    tape = Tape(seed, given)
    scenario = scenario_of(seed, tape)
    world = World(tape, trace=trace)
    ledger = Ledger(lambda: world.now_us - BEGIN_US)
    data = Data(world, ledger, is_stepped=scenario.is_stepped)
    town = Town(world, scenario, ledger, data, seed=seed)
    with planted(world):
        try:
            town.begin()
            _lead(town, ledger)
        except Endless:
            ledger.blame("endless", "it takes far too many steps")
        finally:
            world.close()
    _judge(town, scenario, ledger)
    for who, error in world.failures:
        ledger.faults.setdefault("broken", []).append(told(who, error))
    simulated_us = world.now_us - BEGIN_US
    return Life(
        seed, world.digest(), world.steps, world.calls, simulated_us,
        simulated_us - scenario.lasts_us, world.tape.taken, ledger.counts, ledger.faults,
        world.accidents,
    )  # fmt: skip


def _lead(town: Town, ledger: Ledger) -> None:
    """Go on through all accidents, then let all be well until everything has been read."""
    world = town.world
    is_drained = False

    def look() -> None:
        nonlocal is_drained
        is_waiting = town.producing or world.landing or _missing(town, ledger)
        is_drained = not is_waiting
        world.later(SECOND_US // 2, look)

    look()
    if not world.run(BEGIN_US + town.scenario.lasts_us, lambda: is_drained):
        world.heal()
        world.run(world.now_us + DRAINED_WITHIN_US, lambda: is_drained)
    if town.producing:
        ledger.blame("stalled", "somebody is still appending")


def _missing(town: Town, ledger: Ledger) -> list[str]:
    found = ledger.waiting(town.groups)
    if not found and not town.scenario.is_stepped:
        found = ledger.unproduced(town.groups)
    return found


def _judge(town: Town, scenario: Scenario, ledger: Ledger) -> None:
    """Blame what is missing at the end."""
    for story in ledger.waiting(town.groups)[:SHOWN_MAX]:
        ledger.blame("missed", story)
    if not scenario.is_stepped:
        for story in ledger.unproduced(town.groups)[:SHOWN_MAX]:
            ledger.blame("unproduced", story)
