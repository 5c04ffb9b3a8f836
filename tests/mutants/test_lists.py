"""A mutant that does not find what it breaks is useless, which `make mutants` finds late."""

from importlib import import_module
from pathlib import Path

import pytest

LISTS = sorted(path.stem for path in Path(__file__).parent.glob("test_*gate.py"))


@pytest.mark.parametrize("name", LISTS)
def test_a_mutant_breaks_what_is_there(name: str) -> None:
    mutants = import_module(f"{__package__}.{name}").MUTANTS
    assert mutants
    failed = {}
    for mutant in mutants:
        with pytest.MonkeyPatch.context() as patch:
            try:
                mutant.breaks(patch)
            except (AssertionError, AttributeError, TypeError, OSError) as error:
                failed[mutant.breaks.__name__] = str(error)
    assert failed == {}
