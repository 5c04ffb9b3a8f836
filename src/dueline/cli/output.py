"""Output of results, for people and for programs."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self, TypeAlias, cast

import typer

from dueline.api.connect import mask
from dueline.cli.session import Format, session_of
from dueline.core.clock import DAY_US
from dueline.core.durations import distance_text, exact_text, instant_text, span_text
from dueline.core.engine import Engine
from dueline.core.text import json_text, printable


class Instant(NamedTuple):
    """A timestamp in microseconds UTC."""

    us: int


class Span(NamedTuple):
    """A duration in microseconds. zero: what people read if it is 0."""

    us: int
    zero: str = ""


class Raw(NamedTuple):
    """A value that is JSON already: arguments, results."""

    json: str


_JSON_CHARACTERS = 2000

_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""First characters of cells that spreadsheets evaluate (OWASP, CSV injection)."""

Value: TypeAlias = (
    "str | int | float | bool | Instant | Span | Raw | Sequence[Value] | Mapping[str, Value] | None"
)
Entry: TypeAlias = Mapping[str, Value]


class Part(NamedTuple):
    """A table below an entry: its name in JSON, its lines, the columns that are shown."""

    name: str
    entries: Sequence[Entry]
    columns: Sequence[str]


_STYLES = {
    "ready": "cyan",
    "running": "green",
    "scheduled": "blue",
    "retrying": "yellow",
    "paused": "yellow",
    "done": "green",
    "dead": "red",
    "cancelled": "dim",
    "waiting": "dim",
    "held": "yellow",
    "failed": "red",
    "good": "green",
    "warning": "yellow",
    "bad": "red",
}
_HEADS = {"priority": "PRIO", "oldest_ready": "OLDEST"}
_FOLDED = ("QUEUE", "TASK", "FINDING", "ANSWER", "WORKER")
_CUT = ("ERROR", "WHY")
_CUT_MIN = 12
_GAP = "  "


class Output:
    """Writes results to stdout."""

    def __init__(self, form: Format, now_us: int, meta: Entry) -> None:
        self._form = form
        self._now_us = now_us
        self._is_begun = False
        self._meta = {**meta, "at": Instant(now_us)}

    @classmethod
    def of(cls, context: typer.Context, engine: Engine) -> Self:
        """Return the output of a command on a store."""
        session = session_of(context)
        command = context.command_path.partition(" ")[2]
        meta = {"command": command, "store": mask(session.address)}
        return cls(session.form, engine.time.latest_us(), meta)

    def entries(self, entries: Sequence[Entry], columns: Sequence[str], **meta: Value) -> None:
        """Write a list: the named columns as a table, or all fields as JSON or CSV."""
        if self._form == "json":
            _line({"data": _plain(entries), "meta": _plain({**self._meta, **meta})})
        elif self._form == "ndjson":
            for entry in entries:
                _line(_plain(entry))
        elif self._form == "csv":
            _csv(entries)
        elif entries:
            heads = [_head(name) for name in columns]
            rows = [[self._cell(entry.get(name)) for name in columns] for entry in entries]
            _table(heads, rows, styled=True)

    def entry(self, entry: Entry, *, parts: Sequence[Part] = ()) -> None:
        """Write one entry: one value per line and its parts as tables, or all as JSON."""
        if self._form != "table":
            self.data({**entry, **{part.name: part.entries for part in parts}})
            return
        shown = {name: self._long(value) for name, value in entry.items()}
        lines = [[name.replace("_", " "), text] for name, text in shown.items() if text]
        if lines:
            _table(None, lines)
        self.tables(parts, is_below=bool(lines))

    def tables(self, parts: Sequence[Part], *, is_below: bool = False) -> None:
        """Write tables in the table format, and nothing in other formats."""
        if self._form != "table":
            return
        for place, part in enumerate(part for part in parts if part.entries):
            if is_below or place:
                print()  # noqa: T201
            self.entries(part.entries, part.columns)

    def data(self, entry: Entry) -> None:
        """Write one entry as JSON or CSV, and nothing in the table format."""
        if self._form == "json":
            _line({"data": _plain(entry), "meta": _plain(self._meta)})
        elif self._form == "ndjson":
            _line(_plain(entry))
        elif self._form == "csv":
            _csv([entry])

    def line(self, entry: Entry, columns: Sequence[str], widths: Sequence[int]) -> None:
        """Write and flush one entry of a stream: a line of fixed widths, or JSON.

        The first entry also writes the header.
        """
        if self._form == "csv":
            _csv([entry], has_heads=not self._is_begun)
        elif self._form != "table":
            _line(_plain(entry))
        else:
            texts = [self._passing(entry.get(name)) for name in columns]
            cells = [" ".join(printable(text).split()) for text in texts]
            if not self._is_begun:
                _row([_head(name) for name in columns], widths)
            _row(cells, widths)
        self._is_begun = True
        sys.stdout.flush()

    def text(self, text: str, entry: Entry) -> None:
        """Write a plain string in the table format, or an entry as JSON or CSV."""
        if self._form == "table":
            print(printable(text))  # noqa: T201
        else:
            self.data(entry)

    def _passing(self, value: Value) -> str:
        """Return a value for a stream, where a relative time would soon be wrong."""
        return instant_text(value.us) if isinstance(value, Instant) else self._long(value)

    def _cell(self, value: Value) -> str:
        if isinstance(value, Instant):
            is_long = abs(value.us - self._now_us) >= DAY_US
            return distance_text(value.us, self._now_us, units=1 + is_long)
        return self._long(value)

    def _long(self, value: Value) -> str:
        match value:
            case None:
                return ""
            case Instant(us):
                return f"{instant_text(us)} ({distance_text(us, self._now_us)})"
            case Span(us, zero):
                return f"{'-' if us < 0 else ''}{span_text(us)}" if us or not zero else zero
            case Raw(text):
                return text if len(text) <= _JSON_CHARACTERS else f"{text[:_JSON_CHARACTERS]}..."
            case bool():
                return "yes" if value else ""
            case str() | int() | float():
                return str(value)
        if isinstance(value, Mapping):
            return ", ".join(f"{name}: {self._cell(inner)}" for name, inner in value.items())
        return ", ".join(self._cell(item) for item in value)


def note(text: str) -> None:
    """Print a message that is not a result to stderr."""
    print(printable(text), file=sys.stderr)  # noqa: T201


def _line(value: object) -> None:
    print(json_text(value))  # noqa: T201


def _head(name: str) -> str:
    return _HEADS.get(name, name.upper().replace("_", " "))


def _row(cells: Sequence[str], widths: Sequence[int]) -> None:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    print(_GAP.join(padded).rstrip())  # noqa: T201


def _csv(entries: Sequence[Entry], *, has_heads: bool = True) -> None:
    """Write entries as rows under one header; nested values are JSON in their cell."""
    rows = [cast("dict[str, object]", _plain(entry)) for entry in entries]
    heads = list(dict.fromkeys(name for row in rows for name in row))
    import csv  # noqa: PLC0415  (few commands need it)

    writer = csv.writer(sys.stdout, lineterminator="\n")
    if heads and has_heads:
        writer.writerow(heads)
    for row in rows:
        writer.writerow([_csv_cell(row.get(name)) for name in heads])


def _csv_cell(value: object) -> object:
    """Return a cell's value: safe on a terminal, and never a formula in a spreadsheet."""
    if isinstance(value, list | dict | bool):
        return json_text(value)
    if not isinstance(value, str):
        return value
    return printable(f"'{value}" if value.startswith(_FORMULAS) else value)


def _plain(value: object) -> object:
    """Return a value as JSON types; durations are seconds under a name that ends in `_s`."""
    match value:
        case Instant(us):
            return exact_text(us)
        case Raw(text):
            return _loaded(text)
        case Span(us, _):
            return us / 1_000_000
        case Mapping():
            return {
                f"{name}_s" if isinstance(each, Span) else name: _plain(each)
                for name, each in value.items()
            }
        case list() | tuple():
            return [_plain(each) for each in value]
    return value


def _loaded(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # written by another program
        return text


def _table(
    heads: Sequence[str] | None, rows: Sequence[Sequence[str]], *, styled: bool = False
) -> None:
    """Write a table: fitted to a terminal, or plain and aligned to a pipe or file."""
    safe = [[printable(cell) for cell in row] for row in rows]
    if heads is not None:  # one line per entry
        safe = [list(heads), *([_on_a_line(cell) for cell in row] for row in safe)]
    widths = [max(map(len, cells)) for cells in zip(*safe, strict=True)]
    if sys.stdout.isatty():
        _fitted(safe, widths, has_heads=heads is not None, styled=styled)
        return
    for row in safe:
        padded = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        print(_GAP.join([*padded, row[-1]]).rstrip())  # noqa: T201


def _on_a_line(cell: str) -> str:
    """Return a string on one line with its indentation."""
    return " " * (len(cell) - len(cell.lstrip(" "))) + " ".join(cell.split())


def _fitted(
    rows: Sequence[Sequence[str]], widths: Sequence[int], *, has_heads: bool, styled: bool
) -> None:
    """Write a table to a terminal: names are folded, errors cut, ids kept whole."""
    from rich.console import Console  # noqa: PLC0415  (slow to load, and seldom needed)
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, padding=(0, len(_GAP), 0, 0), show_header=has_heads)
    room = console.width - sum(widths) - len(_GAP) * (len(widths) - 1)
    for place, width in enumerate(widths):
        head = rows[0][place] if has_heads else ""
        if head in _CUT:
            fitting = max(_CUT_MIN, width + min(0, room))
            table.add_column(head, width=fitting, no_wrap=True, overflow="ellipsis")
        elif head in _FOLDED or (not has_heads and place):
            table.add_column(head, overflow="fold")
        else:
            table.add_column(head, min_width=width, no_wrap=True)
    for row in rows[has_heads:]:
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "") if styled else "") for cell in row))
    console.print(table)
