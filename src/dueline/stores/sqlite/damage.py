"""Repairs rows of a queue file that other programs or a bad disk have damaged.

Tables are STRICT, so SQLite refuses values of a wrong type. Older files become STRICT when they are
opened: only the tables' statements change, not the rows, and earlier versions of dueline can still
use them. Rows that do not fit are converted if that loses nothing. Otherwise they move to
`dueline_damaged`, each as the statement that inserts it again.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import resources
from typing import Any, Final, NamedTuple

import apsw

SCHEMAS: Final = ("schema.sql", "schema_2.sql")
"""Scripts of the schema versions; each adds to the one before."""

DAMAGED: Final = "dueline_damaged"

_CREATE: Final = (
    f"CREATE TABLE IF NOT EXISTS {DAMAGED} (found_us INTEGER NOT NULL, place TEXT NOT NULL,"
    " reason TEXT NOT NULL, statement TEXT NOT NULL) STRICT"
)
_NUMBER_MAX: Final = 2**62
"""Maximum of numbers that grow, as in the CHECKs of the tables."""

_BOUNDED: Final = {
    "marks": ("swept", "closed"),
    "jobs": ("hop", "fence", "errors", "crashes"),
    "dueline_stream_marks": ("closed_us",),
}
_KEYS: Final = {
    "lanes": ("queue", "shard", "bucket", "priority", "tenant"),
    "marks": ("queue", "shard"),
    "jobs": ("id",),
    "bodies": ("id",),
    "records": ("partition", "key"),
    "rows": ("stream", "shard", "at_us", "id"),
    "dueline_stream_marks": ("stream", "shard"),
}
"""Key columns by table; lanes are first, since jobs need them."""

_SHOWN_MAX: Final = 20
_PROGRESS_STEPS: Final = 10_000
"""Number of steps of SQLite's virtual machine between two checks of the time limit."""


class _Column(NamedTuple):
    """A column. kind: INTEGER, TEXT or BLOB."""

    name: str
    kind: str
    is_required: bool


class _Cell(NamedTuple):
    """A stored value; text as bytes, since it may not be UTF-8."""

    value: Any
    kind: Any


def tables() -> dict[str, str]:
    """Return the statements that create the tables of the present schema, by name."""
    return dict(_tables())


@cache
def _tables() -> Sequence[tuple[str, str]]:
    database = apsw.Connection(":memory:")
    for name in SCHEMAS:
        for _ in database.execute(resources.files(__package__).joinpath(name).read_text("utf-8")):
            pass
    query = "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    found = [(str(name), str(statement)) for name, statement in database.execute(query)]
    database.close()
    return found


def is_strict(database: apsw.Connection) -> bool:
    """Return whether the tables refuse values of a wrong type."""
    strict = database.execute("SELECT sql FROM sqlite_schema WHERE name = 'jobs'").get
    return strict is None or "STRICT" in strict


def make_strict(database: apsw.Connection, *, now_us: int) -> None:
    """Make the tables STRICT, in the caller's transaction; repair or move rows that do not fit."""
    version = database.pragma("schema_version")
    database.execute("PRAGMA writable_schema = ON")
    try:
        for name, statement in tables().items():
            database.execute(
                "UPDATE sqlite_schema SET sql = ? WHERE type = 'table' AND name = ?",
                (statement, name),
            )
        database.execute(f"PRAGMA schema_version = {version + 1}")
    finally:
        database.execute("PRAGMA writable_schema = RESET")
    if any(database.execute(f"PRAGMA quick_check({name})").get != "ok" for name in _KEYS):
        move_damaged(database, now_us=now_us)


def move_damaged(database: apsw.Connection, *, now_us: int) -> int:
    """Convert rows whose values do not fit their columns, or move them to `dueline_damaged`.

    Runs in the caller's transaction, and reads all tables.

    Returns:
      The number of rows.
    """
    database.create_scalar_function("dueline_is_utf8", _is_utf8, 1, deterministic=True)
    return sum(_move_damaged(database, name, now_us) for name in _KEYS)


def _move_damaged(database: apsw.Connection, table: str, now_us: int) -> int:
    columns = [
        _Column(name, kind, is_required=bool(required or key))
        for _, name, kind, required, _, key in database.execute(f"PRAGMA table_info({table})")
    ]
    fits = " AND ".join(
        [*map(_fits, columns), *(f"{name} < {_NUMBER_MAX}" for name in _BOUNDED.get(table, ()))]
    )
    if table == "jobs":
        fits += " AND lane IN (SELECT id FROM lanes)"
    # NULL means that a value does not fit, too.
    misfit = f"coalesce(NOT ({fits}), 1)"
    cells = ", ".join(
        f"iif(typeof({name}) = 'text', CAST({name} AS BLOB), {name}), typeof({name})"
        for name, *_ in columns
    )
    found = database.execute(f"SELECT {cells} FROM {table} WHERE {misfit}").fetchall()  # noqa: S608
    if not found:
        return 0
    database.execute(f"DELETE FROM {table} WHERE {misfit}")  # noqa: S608
    database.execute(_CREATE)
    names = ", ".join(column.name for column in columns)
    marks = ", ".join("?" * len(columns))
    for row in found:
        stored = [_Cell(*pair) for pair in zip(row[::2], row[1::2], strict=True)]
        values = [_healed(column, cell) for column, cell in zip(columns, stored, strict=True)]
        reasons = [
            f"{column.name} is {cell.kind}{'' if cell.kind != 'text' else ' that cannot be read'}"
            for column, cell, value in zip(columns, stored, values, strict=True)
            if value is None and (column.is_required or cell.kind != "null")
        ]
        insert = f"INSERT INTO {table} ({names}) VALUES"
        if not reasons and (reason := _refused(database, table, f"{insert} ({marks})", values)):
            reasons = [reason]
        if reasons:
            place = [
                _shown(cell)
                for column, cell in zip(columns, stored, strict=True)
                if column.name in _KEYS[table]
            ]
            literals = ", ".join(map(_literal, stored))
            database.execute(
                f"INSERT INTO {DAMAGED} VALUES (?, ?, ?, ?)",  # noqa: S608
                (
                    now_us,
                    f"{table} {' '.join(place)}",
                    "; ".join(reasons),
                    f"{insert} ({literals});",
                ),
            )
    return len(found)


def _fits(column: _Column) -> str:
    name, kind, is_required = column
    fits = f"typeof({name}) = '{kind.lower()}'"
    if kind == "TEXT":
        fits += f" AND dueline_is_utf8(CAST({name} AS BLOB))"
    return f"({fits})" if is_required else f"({name} IS NULL OR {fits})"


def _healed(column: _Column, cell: _Cell) -> int | bytes | str | None:
    """Return the value in its column's type; None if the conversion would lose something."""
    value, _ = cell
    if isinstance(value, bytes) and column.kind == "BLOB":
        return value
    if isinstance(value, bytes) and column.kind == "TEXT" and _is_utf8(value):
        return value.decode()
    return value if isinstance(value, int) and column.kind == "INTEGER" else None


def _refused(
    database: apsw.Connection, table: str, statement: str, values: Sequence[object]
) -> str:
    """Insert a row; return the reason if it is refused, else an empty string."""
    if table == "jobs":
        lane = database.execute("SELECT 1 FROM lanes WHERE id = ?", (values[0],)).get
        if lane is None:
            return "its lane was set aside, or is not there"
    try:
        database.execute(statement, tuple(values))
    except apsw.ConstraintError as error:
        return str(error)
    return ""


def _is_utf8(value: Any = None, *_: Any) -> bool:  # noqa: ANN401  (as SQLite calls it)
    try:
        value.decode()
    except (AttributeError, UnicodeDecodeError):
        return False
    return True


def _literal(cell: _Cell) -> str:
    value, kind = cell
    if value is None:
        return "NULL"
    if isinstance(value, int | float):
        return repr(value)
    if kind == "blob":
        return f"x'{value.hex()}'"
    if _is_utf8(value) and b"\0" not in value:
        text: str = value.decode()
        return "'" + text.replace("'", "''") + "'"
    return f"CAST(x'{value.hex()}' AS TEXT)"


def _shown(cell: _Cell) -> str:
    value, kind = cell
    if isinstance(value, bytes):
        return value.hex() if kind == "blob" else repr(value.decode(errors="backslashreplace"))
    return str(value)


def compare_indexes(database: apsw.Connection, is_over: Callable[[], bool]) -> list[str] | None:
    """Compare all indexes with their tables, until `is_over` returns true.

    Returns:
      The first differences; None if it took too long.
    """
    database.set_progress_handler(is_over, _PROGRESS_STEPS)
    try:
        query = f"PRAGMA integrity_check({_SHOWN_MAX})"
        found = [str(row[0]) for row in database.execute(query)]
    except apsw.InterruptError:
        return None
    finally:
        database.set_progress_handler(None)
    return [] if found == ["ok"] else found


def damaged_rows(database: apsw.Connection) -> str:
    """Describe the rows in `dueline_damaged`; return an empty string for none."""
    if database.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (DAMAGED,)).get is None:
        return ""
    count: int = database.execute(f"SELECT count(*) FROM {DAMAGED}").get  # noqa: S608
    if not count:
        return ""
    shown = "; ".join(_named(database))
    return f"{count}: {shown}{' ...' if count > _SHOWN_MAX else ''}"


def _named(database: apsw.Connection) -> Iterator[str]:
    query = f"SELECT place, reason FROM {DAMAGED} ORDER BY rowid LIMIT {_SHOWN_MAX}"  # noqa: S608
    for place, reason in database.execute(query):
        yield f"{place} ({reason})"
