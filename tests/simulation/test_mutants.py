"""Each broken rule goes wrong in some life, and the table says in which."""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from simulation.life import live
from tests.mutants import births, claims, endings, requests
from tests.mutants.table import tell
from tests.simulation import broken

LIVES_MAX = 400
"""In so many lives at most a broken rule has to show; most do in ten."""


class Mutant(NamedTuple):
    """A broken rule: its id in docs/protocols.md, the patch, and on which kind of store.

    first: the life to begin with, for what shows rarely: shortly before one that showed it.
    """

    rule: str
    breaks: Callable[[pytest.MonkeyPatch], None]
    is_stepped: bool = True
    first: int = 1


MUTANTS = (
    Mutant("E1", births.a_repeated_add_has_a_position_of_its_own),
    Mutant("B1", births.a_dropped_key_lives_again, first=90),
    Mutant("P1", claims.an_unfenced_claim),
    Mutant("P1", claims.the_fence_is_not_raised),
    Mutant("P1", broken.a_claim_in_a_transaction_that_raises_no_fence, is_stepped=False),
    Mutant("P2", claims.an_unconditional_verdict),
    Mutant("P2", claims.a_verdict_is_never_refused),
    Mutant("P2", claims.an_extension_that_revives_a_lapsed_claim),
    Mutant("P2", endings.any_token_decides),
    Mutant("P2", broken.a_transaction_takes_any_token, is_stepped=False),
    Mutant("P5", broken.a_group_goes_on_after_a_verdict_that_failed, is_stepped=False),
    Mutant("P5", endings.effects_before_the_outcome),
    Mutant("P5", endings.drop_before_the_effects),
    Mutant("P5", endings.drop_before_the_repeated_effects),
    Mutant("P5", endings.handler_runs_though_there_is_an_outcome),
    Mutant("U5", requests.a_refusal_is_believed),
    Mutant("K1", births.carried_without_a_stub, first=43),
    Mutant("K3", births.stub_goes_before_its_target_comes, first=1685),
)


def wrong(mutant: Mutant) -> Iterator[tuple[int, str]]:
    """Lead lives on its kind of store; give the number of each that goes wrong, and how."""
    for number in range(mutant.first, mutant.first + LIVES_MAX):
        faults = live(2 * number + mutant.is_stepped).faults
        if faults:
            yield number, ", ".join(sorted(faults))


@pytest.mark.mutants
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.breaks.__name__)
def test_without_its_rule_some_life_goes_wrong(
    mutant: Mutant,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    mutant.breaks(monkeypatch)
    began_s = time.process_time()
    number, verdict = next(wrong(mutant), (0, ""))
    name = mutant.breaks.__name__.replace("_", " ")
    assert number, f"nobody notices: {name}"
    assert "broken" not in verdict, "the patch is wrong"
    noticed = f"simulation, life {number}: {verdict}"
    tell(record_property, f"{mutant.rule:<3} {name}", noticed, time.process_time() - began_s)
