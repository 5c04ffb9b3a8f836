"""A mutant, the test that notices it, and how it is noticed."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.harness.ground import Ground
from tests.mutants.table import tell

BUDGET_S = 60
"""How much time of a processor the tests of one mutant may take until one of them notices."""


class Named(NamedTuple):
    """A test that has to notice: on which kind of store, and with which other arguments."""

    test: Callable[..., object]
    kind: str = "memory"
    given: Callable[[], Mapping[str, object]] = dict

    def __str__(self) -> str:
        """Name it as pytest does."""
        place = self.test.__module__.replace(".", "/")
        return f"{place}.py::{self.test.__name__}"


class Mutant(NamedTuple):
    """A broken rule: its id in docs/protocols.md, the patch, the test that notices."""

    rule: str
    breaks: Callable[[pytest.MonkeyPatch], None]
    noticed: Named


def by(test: Callable[..., object], **given: object) -> Named:
    """Name a test, on the memory store if it takes one."""
    return Named(test, given=lambda: given)


def failure(named: Named) -> BaseException | None:
    """Run a test; give what it failed with."""
    try:
        Ground(named.kind, Path()).call(named.test, **named.given())
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  a test may fail in any way
        return error
    return None


def caught(
    mutant: Mutant,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> BaseException | None:
    """Break a rule; return what its test fails with, and tell how long that took."""
    mutant.breaks(monkeypatch)
    began_s = time.process_time()
    error = failure(mutant.noticed)
    took_s = time.process_time() - began_s
    assert not isinstance(error, TypeError | AttributeError | NameError), "the patch is wrong"
    assert took_s < BUDGET_S
    name = mutant.breaks.__name__.replace("_", " ")
    tell(record_property, f"{mutant.rule:<3} {name}", str(mutant.noticed), took_s)
    return error


def each_needed(mutants: Sequence[Mutant]) -> Callable[..., None]:
    """Return a test of each mutant, for a module that lists them."""

    @pytest.mark.mutants
    @pytest.mark.parametrize("mutant", mutants, ids=lambda mutant: mutant.breaks.__name__)
    def test_without_its_rule_a_test_fails(
        mutant: Mutant,
        monkeypatch: pytest.MonkeyPatch,
        record_property: Callable[[str, object], None],
    ) -> None:
        assert caught(mutant, monkeypatch, record_property), "nobody notices"

    needed: Callable[..., None] = test_without_its_rule_a_test_fails
    return needed
