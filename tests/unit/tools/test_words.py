"""Banned words: how they are found, and how exceptions are listed."""

from pathlib import Path

import pytest

from tools.words import Allowed, allowed, banned, check, find

WORDS = banned("# why\nborn = inserted\nso many = up to N\nis none = say what there is not\n")


@pytest.mark.parametrize(
    "text",
    [
        "Jobs are born here.",
        "born_at = 3",
        "BORN = 1",
        "class JobBorn:",
        "At most so many run.",
        "At most so\n    # many run.",
        "There is none.",
    ],
)
def test_a_planted_word_is_found(text: str) -> None:
    assert len(list(find("a.py", text, WORDS))) == 1


@pytest.mark.parametrize(
    "text", ["stubborn", "airborne", "x is None", "so far many", "reborn", "`test_born.py`"]
)
def test_other_words_are_not(text: str) -> None:
    assert list(find("a.py", text, WORDS)) == []


def test_a_folder_is_searched_and_exceptions_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text('x = 1\nKIND = "born"\n', encoding="utf-8")
    (tmp_path / "README.md").write_text("So many | so few.\n", encoding="utf-8")
    assert check(tmp_path, WORDS, {}) == [
        "src/a.py:2: 'born' (say: inserted): KIND = \"born\"",
        "README.md:1: 'so many' (say: up to N): So many | so few.",
    ]
    listed = 'src/a.py | KIND = "born" | stored\nREADME.md | So many | so few. | a quotation\n'
    assert check(tmp_path, WORDS, allowed(listed)) == []
    stale = allowed(listed + "src/a.py | x = 1 | not needed\n")
    assert check(tmp_path, WORDS, stale) == [
        "src/a.py: no such line is left, drop its exception: x = 1"
    ]
    assert Allowed("README.md", "So many | so few.") in stale


def test_an_exception_without_a_reason_is_refused() -> None:
    with pytest.raises(SystemExit, match="does not have 3 fields"):
        allowed("src/a.py | x = 1")
