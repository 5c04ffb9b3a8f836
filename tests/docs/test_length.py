"""How long pages, paragraphs and bullets may be."""

from pathlib import Path

import pytest

from tests.harness.markdown import PAGES, ROOT
from tests.harness.prose import Piece, pieces

PAGE_WORDS_MAX = 1_800
PARAGRAPH_WORDS_MAX = 90
BULLET_WORDS_MAX = 45

REFERENCES = ("docs/reference/", "docs/decisions/", "docs/protocols.md", "docs/features.md")
"""Pages to look things up in, which may be long."""

USER_WORDS_MAX = 45_000
"""Running text of all pages but references and those of developers; without tables and code."""

NAMES = [str(path.relative_to(ROOT)) for path in PAGES]


def prose(name: str) -> list[Piece]:
    """Read the paragraphs and bullets of a page."""
    return list(pieces((ROOT / name).read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", NAMES)
def test_a_page_and_what_it_is_made_of_are_short(name: str) -> None:
    found = prose(name)
    long = [
        f"{name}:{piece.line}: {piece.words} words"
        for piece in found
        if piece.words > (BULLET_WORDS_MAX if piece.is_bullet else PARAGRAPH_WORDS_MAX)
    ]
    assert long == []
    if not name.startswith(REFERENCES):
        assert sum(piece.words for piece in found) <= PAGE_WORDS_MAX


def test_what_users_read_is_short() -> None:
    apart = (*REFERENCES, "docs/developers/")
    read = [name for name in NAMES if name.startswith("docs/") and not name.startswith(apart)]
    assert sum(piece.words for name in read for piece in prose(name)) <= USER_WORDS_MAX


def test_pages_are_found_in_all_folders() -> None:
    assert PAGES[0] == ROOT / "README.md"
    assert {path.parent for path in PAGES} >= {
        folder
        for folder in (ROOT / "docs").rglob("*")
        if folder.is_dir() and list(folder.glob("*.md"))
    }


def test_prose_is_split_without_code_tables_and_targets() -> None:
    page = (
        "---\ntitle: x\n---\n# Title\n\nOne [two](three four.md)\nfive.\n- six\n  seven\n- eight\n"
        "\n| nine | ten |\n\n```python\neleven\n```\n\n!!! note\n    twelve\n\n1. thirteen\n"
    )
    assert [(piece.line, piece.is_bullet, piece.words) for piece in pieces(page)] == [
        (6, False, 3),
        (8, True, 2),
        (10, True, 1),
        (19, False, 1),
        (21, True, 1),
    ]


def test_a_plain_page_has_its_words(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("# Title\n\n" + "word " * 91 + "\n\n- " + "word " * 46, encoding="utf-8")
    found = list(pieces(path.read_text(encoding="utf-8")))
    assert [piece.words for piece in found] == [91, 46]
