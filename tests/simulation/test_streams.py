"""Lives of streams: they end well, and go wrong where a rule is broken (H7)."""

import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import pytest

from simulation.faults import KINDS
from simulation.lives import live
from simulation.streams.scenario import STALL_US, scenario_of
from simulation.tape import Tape
from tests.mutants.table import tell
from tests.simulation import broken_streams

SEEDS = range(-60, -1)
LIVES_MAX = 400
"""In so many lives at most a broken rule has to show; most do in ten."""


@pytest.mark.timeout(600)
def test_lives_of_streams_end_well() -> None:
    lives = [live(seed) for seed in SEEDS[:24]]
    assert {life.seed: life.faults for life in lives if life.faults} == {}
    counts = sum((Counter(life.counts) for life in lives), Counter())
    assert counts["handed again"] > 0  # there are accidents
    assert counts["granted"] > 2 * len(lives)  # and shards change hands


def test_a_tape_leads_the_life_that_it_was_taken_from() -> None:
    life = live(-7)
    assert live(-7, life.tape).digest == life.digest
    assert live(-8).digest != life.digest


@pytest.mark.parametrize("seed", [-2, -1])
def test_a_tape_of_zeros_is_a_life_without_accidents(seed: int) -> None:
    life = live(seed, [])
    assert life.accidents == []
    assert life.faults == {}
    assert life.counts["handed"] == life.counts["appended"] > 0
    assert life.counts["handed again"] == 0


def test_every_kind_of_accident_comes_up() -> None:
    drawn = [scenario_of(seed, Tape(seed)) for seed in SEEDS]
    assert {one.is_stepped for one in drawn} == {True, False}
    assert {fault for one in drawn for fault in one.faults} == set(KINDS)
    assert any(one.stalls and one.lasts_us > STALL_US for one in drawn)
    assert any(one.is_skewed for one in drawn)
    assert any(one.monitors > 1 for one in drawn)
    assert {count for one in drawn for count in one.cuts} == {1, 3, 7}


class Mutant(NamedTuple):
    """A broken rule: its id in docs/protocols.md, the patch, on which store, what is said.

    first: the life to begin with, for what shows rarely: shortly before one that showed it.
    """

    rule: str
    breaks: Callable[[pytest.MonkeyPatch], None]
    kind: str
    verdict: str
    first: int = 1


MUTANTS = (
    Mutant("L1", broken_streams.a_lease_is_granted_without_a_new_epoch, "steps", "epoch"),
    Mutant(
        "L2",
        broken_streams.a_checkpoint_is_not_opened_under_the_epoch,
        "memory",
        "stale",
        first=805,
    ),
    Mutant("L4", broken_streams.a_member_goes_on_when_its_lease_is_in_doubt, "steps", "owners"),
    Mutant(
        "L5",
        broken_streams.a_checkpoint_is_written_whoever_wrote_before,
        "memory",
        "back",
        first=24,
    ),
    Mutant("L5", broken_streams.a_product_is_stored_without_its_position, "memory", "doubled"),
    Mutant("F1", broken_streams.a_producer_does_not_look_after_it_appends, "steps", "missed"),
    Mutant("F2", broken_streams.the_mark_is_raised_after_the_read, "steps", "missed"),
    Mutant("F2", broken_streams.a_reader_goes_beyond_the_mark, "steps", "unclosed"),
    Mutant(
        "F5", broken_streams.new_shards_are_begun_before_the_old_ones_are_read, "memory", "order"
    ),
    Mutant("F5", broken_streams.an_old_shard_is_left_without_its_seal, "memory", "missed"),
    Mutant("F5", broken_streams.a_producer_takes_a_sealed_shard_for_an_open_one, "steps", "missed"),
    Mutant("F4", broken_streams.what_nobody_has_read_expires, "memory", "missed", first=120),
)


@pytest.mark.mutants
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.breaks.__name__)
def test_without_its_rule_some_life_of_a_stream_goes_wrong(
    mutant: Mutant,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    mutant.breaks(monkeypatch)
    began_s = time.process_time()
    name = mutant.breaks.__name__.replace("_", " ")
    for number in range(mutant.first, mutant.first + LIVES_MAX):
        faults = live(-2 * number - (mutant.kind == "steps")).faults
        assert "broken" not in faults, "the patch is wrong"
        if mutant.verdict in faults:
            noticed = f"simulation of streams, life {number}: {mutant.verdict}"
            tell(
                record_property, f"{mutant.rule:<3} {name}", noticed, time.process_time() - began_s
            )
            return
    pytest.fail(f"nobody notices: {name}")
