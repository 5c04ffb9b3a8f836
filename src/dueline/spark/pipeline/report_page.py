"""The HTML of a report: tiles of its first screen, sections, tables."""

from collections.abc import Collection, Sequence
from html import escape
from typing import Final, NamedTuple

_STYLE: Final = """
:root{color-scheme:light dark;--ink:#4a5563;--text:#1d2733;--page:#f4f6f8;--card:#fff;
--grid:#dfe4ea;--good:#23855b;--bad:#c9302c;--s0:#2f72c4;--s1:#e2902d;--s2:#c9302c;--s3:#8a55c9;
--s4:#8b97a5}
@media (prefers-color-scheme:dark){:root{--ink:#a3afbd;--text:#dce3ea;--page:#12161b;
--card:#1b2128;--grid:#323b46;--good:#41b883;--bad:#f0706a;--s0:#5b9fe8;--s1:#efab55;--s2:#f0706a;
--s3:#b48ae6;--s4:#75818f}}
*{box-sizing:border-box}
body{font:15px/1.45 system-ui,sans-serif;margin:0 auto;max-width:1280px;padding:16px;
color:var(--text);background:var(--page)}
h1{font-size:1.5em;margin:0}h2{font-size:1em;margin:0 0 .5em}
header{margin:0 0 14px}.note{margin:.3em 0 0;font-size:.86em;color:var(--ink)}
main,.tiles{display:grid;gap:12px;grid-template-columns:repeat(6,1fr)}
.tiles{margin-bottom:12px}.tile{grid-column:span 2}section{grid-column:span 2}
section.wide{grid-column:1/-1}
.tile,section{background:var(--card);border:1px solid var(--grid);border-radius:8px;
padding:12px;min-width:0}
.tile{border-left:5px solid var(--s4)}.tile.good{border-left-color:var(--good)}
.tile.bad{border-left-color:var(--bad)}
.tile b{display:block;font-size:1.5em;font-weight:600;line-height:1.25}
.tile.good b{color:var(--good)}.tile.bad b{color:var(--bad)}
.tile span,.tile small{display:block;color:var(--ink);overflow-wrap:anywhere}
svg{display:block;width:100%;height:auto;max-width:560px;overflow:visible}
svg text{font-family:system-ui,sans-serif}.wide svg{max-width:none}
section .narrow{display:none}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.88em;width:100%}
td,th{text-align:right;padding:4px 8px;border-bottom:1px solid var(--grid);vertical-align:top;
white-space:nowrap}
td.text,th.text{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:8em}
td.text:last-child{min-width:20em}code{font-size:.92em;user-select:all}
@media (max-width:1000px){section{grid-column:span 3}}
@media (max-width:700px){main,.tiles{grid-template-columns:1fr 1fr;gap:8px}body{padding:10px}
.tile{grid-column:span 1;padding:8px}.tile b{font-size:1.2em}section{grid-column:1/-1}
section .wide{display:none}section .narrow{display:block}}
"""


class Tile(NamedTuple):
    """A number of the first screen; `is_good` is None if it is neither good nor bad."""

    name: str
    value: str
    words: str
    is_good: bool | None


def page_of(title: str, head: str, tiles: Sequence[Tile], parts: Sequence[str]) -> str:
    """Return a page."""
    drawn = "".join(map(_tile, tiles))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>"
        f'<header><h1>{escape(title)}</h1><p class="note">{escape(head)}</p></header>'
        f'<div class="tiles">{drawn}</div><main>{"".join(parts)}</main></html>\n'
    )


def section(name: str, body: str, *, is_wide: bool = False) -> str:
    """Return a section; nothing if it has no body."""
    kind = ' class="wide"' if is_wide else ""
    return f"<section{kind}><h2>{escape(name)}</h2>{body}</section>" if body else ""


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, texts: Collection[int]) -> str:
    """Return a table of cells that are HTML; nothing if it has no rows.

    Args:
        heads: Names of its columns.
        rows: Its rows.
        texts: Places of the columns that are texts.
    """
    if not rows:
        return ""
    kinds = [' class="text"' if place in texts else "" for place in range(len(heads))]
    head = "".join(f"<th{kind}>{name}</th>" for kind, name in zip(kinds, heads, strict=True))
    lines = [
        "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, row, strict=True))
        for row in rows
    ]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def code(text: str) -> str:
    """Return a command."""
    return f"<code>{escape(text)}</code>"


def _tile(tile: Tile) -> str:
    kind = {True: " good", False: " bad", None: ""}[tile.is_good]
    return (
        f'<div class="tile{kind}"><span>{escape(tile.name)}</span><b>{escape(tile.value)}</b>'
        f"<small>{escape(tile.words)}</small></div>"
    )
