"""The prose of a Markdown page: its paragraphs and bullets, without code and tables."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.harness.markdown import FENCE

BULLET = re.compile(r"^ *(?:[-*+]|\d+[.)]) +(?P<text>.*)$")
SKIPPED = re.compile(r"^ *(?:\||#|:::|<|!!!|\?\?\?|===)")
"""Tables, headings, generated reference, HTML, and the first lines of boxes and tabs."""
TARGET = re.compile(r"\]\([^)]*\)(?:\{[^}]*\})?")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
FRONT_MATTER = re.compile(r"\A---\n.*?^---\n", re.DOTALL | re.MULTILINE)


class Piece(NamedTuple):
    """A paragraph or a bullet, with the line where it starts."""

    line: int
    is_bullet: bool
    text: str

    @property
    def words(self) -> int:
        """Return the number of words; link targets do not count."""
        return len(TARGET.sub("]", self.text).split())


def pieces(page: str) -> Iterator[Piece]:
    """Yield the paragraphs and bullets of a page, in order."""
    for hidden in (FRONT_MATTER, COMMENT, FENCE):
        page = hidden.sub(lambda match: "\n" * match[0].count("\n"), page)
    first, is_bullet, gathered = 0, False, list[str]()
    for number, line in enumerate([*page.splitlines(), ""], 1):
        bullet = BULLET.match(line)
        is_skipped = bullet is None and SKIPPED.match(line) is not None
        if gathered and (bullet or is_skipped or not line.strip()):
            yield Piece(first, is_bullet, " ".join(gathered))
            gathered = []
        if is_skipped or not line.strip():
            continue
        if not gathered:
            first, is_bullet = number, bullet is not None
        gathered.append(bullet["text"] if bullet else line.strip())
