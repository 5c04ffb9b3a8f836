"""The rules that docs/protocols.md writes down."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIRST = r"[A-Z]\d{1,2}"
"""The id of a rule, such as B1."""


def rules() -> set[str]:
    """List the rules that are written down."""
    return _rules_in(_page())


def proposed() -> dict[str, set[str]]:
    """List the rules of sections that no code keeps yet, by section."""
    sections = re.split(r"^## Proposed: ", _page(), flags=re.MULTILINE)[1:]
    own = [re.split(r"^## ", section, flags=re.MULTILINE)[0] for section in sections]
    return {section.partition("\n")[0]: _rules_in(section) for section in own}


def _page() -> str:
    return (ROOT / "docs" / "protocols.md").read_text(encoding="utf-8")


def _rules_in(text: str) -> set[str]:
    return set(re.findall(rf"^- \*\*({FIRST})\*\*", text, re.MULTILINE))
