"""Sees that lives go wrong where a rule is broken."""

import time
from collections.abc import Callable, Iterable

import pytest

from simulation.lives import live
from tests.mutants.table import tell


def some_life_goes_wrong(
    seeds: Iterable[int],
    kind: str,
    *,
    rule: str,
    breaks: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    """Break a rule, lead lives until one goes wrong, and note which; fail where none does.

    Args: kind: of the lives, for what is noted.
    """
    breaks(monkeypatch)
    began_s = time.process_time()
    for number, seed in enumerate(seeds, 1):
        faults = set(live(seed).faults) - {"broken"}
        if faults:
            noticed = f"simulation {kind}, life {number}: {', '.join(sorted(faults))}"
            name = f"{rule:<3} {breaks.__name__.replace('_', ' ')}"
            tell(record_property, name, noticed, time.process_time() - began_s)
            return
    pytest.fail(f"nobody notices: {breaks.__name__}")
