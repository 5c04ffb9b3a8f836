"""The pages of what happens when, and the page of the tests that show each situation."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted((ROOT / "docs" / "operations").glob("what-happens-when*.md"))
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
PROOF = (ROOT / "docs" / "developers" / "situations.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| (?!situation|---)(.+?) \| (.+) \|$", PROOF, re.MULTILINE))
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")
FILES = re.compile(r"`((?:tests|models|src)/[\w/]*)(?:\.py)?`")
SITUATIONS_MIN = 40


def situations() -> dict[str, str]:
    """Read the pages: what happens, by situation."""
    parts = re.split(r"^### (.+)$", TEXT, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_there_are_many_and_each_is_described_once() -> None:
    headings = re.findall(r"^### (.+)$", TEXT, re.MULTILINE)
    assert len(headings) == len(set(headings)) >= SITUATIONS_MIN


def test_no_row_of_tests_is_left_of_a_situation_that_went() -> None:
    assert ROWS.keys() - situations().keys() == set()


@pytest.mark.parametrize("name", situations())
def test_a_situation_names_the_tests_that_show_it(name: str) -> None:
    assert len(situations()[name].strip()) > len(name)
    tests = ROWS[name]
    named = NAMED.findall(tests)
    assert named or "*not tested*" in tests
    for path, test in named:
        assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{test}"
    for path in FILES.findall(tests):
        assert (ROOT / path).exists() or (ROOT / f"{path}.py").is_file(), path
