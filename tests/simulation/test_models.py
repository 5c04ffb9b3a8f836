"""The explorer, and that each rule of a model has a mutant."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import pytest

from models.__main__ import RIGHT, WRONG
from models.explore import TooLarge, explore, put


@dataclass(frozen=True)
class Counters:
    """Two who read a number and write it back plus one."""

    atomic: bool = True

    def start(self) -> tuple[int, tuple[int, ...]]:
        return 0, (-1, -1)

    def steps(
        self, state: tuple[int, tuple[int, ...]]
    ) -> Iterator[tuple[str, tuple[int, tuple[int, ...]]]]:
        number, read = state
        for who in (0, 1):
            if read[who] == -1 and self.atomic:
                yield f"{who} counts", (number + 1, put(read, who, 9))
            elif read[who] == -1:
                yield f"{who} reads", (number, put(read, who, number))
            elif read[who] != 9:
                yield f"{who} writes", (read[who] + 1, put(read, who, 9))

    def fault(self, state: tuple[int, tuple[int, ...]]) -> str:
        return "one is not counted" if state == (1, (9, 9)) else ""


def test_a_right_model_is_explored_to_its_end() -> None:
    finding = explore(Counters())
    assert (finding.states, finding.fault, finding.story) == (4, "", [])


def test_a_fault_is_told_by_the_shortest_way_there() -> None:
    finding = explore(Counters(atomic=False))
    assert finding.fault == "one is not counted"
    assert finding.story == ["0 reads", "1 reads", "0 writes", "1 writes"]


def test_a_model_that_is_too_large_proves_nothing() -> None:
    with pytest.raises(TooLarge, match="more than 3 states"):
        explore(Counters(), states_max=3)


@pytest.mark.parametrize("name", RIGHT)
def test_each_rule_of_a_model_is_left_out_by_a_mutant(name: str) -> None:
    right: Any = next(iter(RIGHT[name].values()))
    rules = [one.name for one in fields(right) if isinstance(one.default, bool)]
    mutants: list[Any] = list(WRONG[name].values())
    variants: list[Any] = list(RIGHT[name].values())
    changed = {
        rule
        for rule in rules
        for one in [*mutants, *variants]
        if getattr(one, rule) != getattr(right, rule)
    }
    assert changed == set(rules)


@pytest.mark.parametrize("name", RIGHT)
def test_the_smallest_mutant_of_a_model_goes_wrong(name: str) -> None:
    """All of them are run by `make models`; here one of each, to see that it still runs."""
    findings = [explore(model, states_max=100_000) for model in list(WRONG[name].values())[:1]]
    assert [bool(finding.fault) for finding in findings] == [True]
