"""The rules that docs/protocols.md writes down."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIRST = r"[A-Z]\d"
"""The id of a rule, such as B1."""


def rules() -> set[str]:
    """List the rules that are written down."""
    return _rules_in(_page())


def proposed() -> set[str]:
    """List the rules of sections that no code keeps yet."""
    sections = re.split(r"^## ", _page(), flags=re.MULTILINE)
    return set().union(*(_rules_in(one) for one in sections if one.startswith("Proposed: ")))


def _page() -> str:
    return (ROOT / "docs" / "protocols.md").read_text(encoding="utf-8")


def _rules_in(text: str) -> set[str]:
    return set(re.findall(rf"^- \*\*({FIRST})\*\*", text, re.MULTILINE))
