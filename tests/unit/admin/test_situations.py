"""docs/what-happens-when.md, and that the tests which it names are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "what-happens-when.md"
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")
FILES = re.compile(r"`((?:tests|models|src)/[\w/]*)(?:\.py)?`")
SITUATIONS_MIN = 40


def situations() -> dict[str, str]:
    """Read the page: what happens, by situation."""
    parts = re.split(r"^### (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_there_are_many_and_each_is_told_once() -> None:
    headings = re.findall(r"^### (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(headings) == len(set(headings)) >= SITUATIONS_MIN


@pytest.mark.parametrize("name", situations())
def test_a_situation_names_the_tests_that_show_it(name: str) -> None:
    told, _, proof = situations()[name].partition("\nProof: ")
    assert len(told.strip()) > len(name)
    named = NAMED.findall(proof)
    assert named or "*not tested*" in proof
    for path, test in named:
        assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{test}"
    for path in FILES.findall(proof):
        assert (ROOT / path).exists() or (ROOT / f"{path}.py").is_file(), path
