"""One run of a stream, from a seed to a verdict."""

from collections.abc import Callable, Sequence

from simulation.life import Life, lead, told_of
from simulation.streams.data import Data
from simulation.streams.ledger import Ledger
from simulation.streams.scenario import Scenario, scenario_of
from simulation.streams.threads import planted
from simulation.streams.town import Town
from simulation.tape import Tape
from simulation.world import BEGIN_US, Endless, World

SHOWN_MAX = 5

STREAM_VERDICTS = ("missed", "unproduced", "order", "unclosed", "owners", "epoch", "back", "mark")
"""Verdicts on runs of streams only; "stale" and "doubled" also apply to queues."""


def live(
    seed: int, given: Sequence[int] | None = None, *, trace: Callable[[str], object] | None = None
) -> Life:
    """Run one seed; the same seed, or the same tape with it, gives the same run.

    Its verdicts: missed (an acknowledged event was not delivered to a group), unproduced and
    doubled (products that share a transaction with their position), order (events of one producer
    with one key), unclosed (delivered from above the watermark), owners (two members certain to
    hold a shard), epoch, back and mark (a value that only increases decreased), stale (a
    checkpoint moves under an older epoch than that of batches), unexpected, broken, endless.
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
            lead(world, scenario.lasts_us, lambda: _has_ended(town, ledger))
            if town.producers.running:
                ledger.blame("stalled", "a producer is still appending")
        except Endless:
            ledger.blame("endless", "the run takes too many steps")
        finally:
            world.close()
    _judge(town, scenario, ledger)
    return told_of(world, ledger.counts, ledger.faults, seed=seed, lasts_us=scenario.lasts_us)


def _has_ended(town: Town, ledger: Ledger) -> bool:
    return not (town.producers.running or town.world.landing or _missing(town, ledger))


def _missing(town: Town, ledger: Ledger) -> list[str]:
    missing = ledger.waiting(town.groups)
    if not missing and not town.scenario.is_stepped:
        missing = ledger.unproduced(town.groups)
    if not missing and town.scenario.delivers:
        missing = [
            story for verdict, story in ledger.undelivered(town.jobs()) if verdict == "missed"
        ]
    return missing


def _judge(town: Town, scenario: Scenario, ledger: Ledger) -> None:
    """Record what is missing at the end."""
    for story in ledger.waiting(town.groups)[:SHOWN_MAX]:
        ledger.blame("missed", story)
    if not scenario.is_stepped:
        for story in ledger.unproduced(town.groups)[:SHOWN_MAX]:
            ledger.blame("unproduced", story)
    if scenario.delivers:
        for verdict, story in list(ledger.undelivered(town.jobs()))[:SHOWN_MAX]:
            ledger.blame(verdict, story)
