"""The rules of docs/protocols.md and where they are cited."""

import re
from pathlib import Path

import pytest

from tests.harness.protocol_rules import FIRST, ROOT, proposed, rules

CITING = ("src", "tests", "models", "simulation")
CITATION = re.compile(rf"\brules? ({FIRST}(?:(?:, | and | to ){FIRST})*)")


def cited_in(text: str) -> set[str]:
    """List the rules that a text cites; `E2 to E4` are three."""
    found = set()
    for words in CITATION.findall(text.replace("\n", " ")):
        for part in re.split(r", | and ", words):
            first, _, last = part.partition(" to ")
            numbers = range(int(first[1:]), int((last or first)[1:]) + 1)
            found |= {f"{first[0]}{number}" for number in numbers}
    return found


def cited(folder: str) -> dict[str, set[str]]:
    """List what the modules of a folder cite, by module."""
    return {
        str(path.relative_to(ROOT)): cited_in(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path != Path(__file__)
    }


def test_citations_are_read() -> None:
    assert cited_in("as rule E1 says; (rules E2 to E4, S1 and\nP11)") == {
        "E1", "E2", "E3", "E4", "S1", "P11",
    }  # fmt: skip


@pytest.mark.slow
def test_no_rule_is_cited_that_is_not_written_down() -> None:
    unknown = {
        module: found - rules()
        for folder in CITING
        for module, found in cited(folder).items()
        if found - rules()
    }
    assert unknown == {}


def test_each_rule_is_cited_where_it_is_kept() -> None:
    kept = set().union(*cited("src").values())
    not_kept = rules() - kept
    assert not_kept <= set().union(*proposed().values())
    assert [name for name, section in proposed().items() if not section & not_kept] == []


def test_each_rule_that_a_model_leaves_out_is_written_down() -> None:
    left_out = set().union(*cited("models").values())
    assert len(left_out) > 20
    assert left_out <= rules()


def test_a_proposed_rule_is_modelled_or_kept_by_the_prototype() -> None:
    folders = (cited("models"), cited("benchmarks"))
    shown = set().union(*(rules for found in folders for rules in found.values()))
    assert set(proposed()) == {"stretches"}
    assert set().union(*proposed().values()) <= shown
