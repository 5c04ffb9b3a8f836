"""CONTRIBUTING.md against the tree."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTIONS = re.findall(
    r"^### (.+?)\n(.+?)(?=^##)",
    (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"),
    re.MULTILINE | re.DOTALL,
)
"""The commonest changes, each with its table."""

FILES_MAX = {
    "A new store, such as MySQL": 25,
    "A new command with its read model": 8,
    "A new option of a call": 11,
    "A new protocol rule": 8,
    "A bug in retries": 6,
}


def rows(section: str) -> list[tuple[str, str]]:
    """List the files of a table, and what is done with each."""
    return re.findall(r"^\| `(.+?)` \| (.+?) \|$", section, re.MULTILINE)


@pytest.mark.parametrize(("change", "section"), SECTIONS)
def test_a_common_change_touches_few_files(change: str, section: str) -> None:
    assert 0 < len(rows(section)) <= FILES_MAX[change]


@pytest.mark.parametrize(("change", "section"), SECTIONS)
def test_files_that_a_change_touches_exist(change: str, section: str) -> None:
    kept = [
        file
        for file, words in rows(section)
        if not words.startswith("new: ") and not re.search(r"NAME|PACKAGE", file)
    ]
    copied = re.findall(r"copy `(.+?)`", section)
    assert [file for file in kept + copied if not (ROOT / file).exists()] == [], change


def test_all_common_changes_are_listed() -> None:
    assert [change for change, _ in SECTIONS] == list(FILES_MAX)
