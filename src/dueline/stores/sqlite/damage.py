"""Sets rows of a queue file aside that a bad disk or another program has damaged.

Tables are STRICT, so SQLite refuses values of a wrong type, but not text that is no UTF-8. Rows
with such text move to `dueline_damaged`, each as the statement that inserts it again.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import apsw

DAMAGED: Final = "dueline_damaged"

_CREATE: Final = (
    f"CREATE TABLE IF NOT EXISTS {DAMAGED} (found_us INTEGER NOT NULL, place TEXT NOT NULL,"
    " reason TEXT NOT NULL, statement TEXT NOT NULL) STRICT"
)
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


def move_damaged(database: apsw.Connection, *, now_us: int) -> int:
    """Move rows with text that is no UTF-8 to `dueline_damaged`, and jobs without a lane.

    Runs in the caller's transaction, and reads all tables.

    Returns:
      The number of rows.
    """
    database.create_scalar_function("dueline_is_utf8", _is_utf8, 1, deterministic=True)
    return sum(_move_damaged(database, name, now_us) for name in _KEYS)


def _move_damaged(database: apsw.Connection, table: str, now_us: int) -> int:
    kinds = {name: kind for _, name, kind, *_ in database.execute(f"PRAGMA table_info({table})")}
    bytes_of = {name: f"CAST({name} AS BLOB)" for name, kind in kinds.items() if kind == "TEXT"}
    fits = " AND ".join(f"dueline_is_utf8({text})" for text in bytes_of.values()) or "true"
    if table == "jobs":
        fits += " AND lane IN (SELECT id FROM lanes)"
    cells = ", ".join(bytes_of.get(name, name) for name in kinds)
    rows = database.execute(f"SELECT {cells} FROM {table} WHERE NOT ({fits})").fetchall()  # noqa: S608
    if not rows:
        return 0
    database.execute(f"DELETE FROM {table} WHERE NOT ({fits})")  # noqa: S608
    database.execute(_CREATE)
    for row in rows:
        values: dict[str, Any] = dict(zip(kinds, row, strict=True))
        damaged = [name for name in bytes_of if not _is_utf8(values[name])]
        place = [_shown(values[name], is_text=name in bytes_of) for name in _KEYS[table]]
        literals = [_literal(value, is_text=name in bytes_of) for name, value in values.items()]
        database.execute(
            f"INSERT INTO {DAMAGED} VALUES (?, ?, ?, ?)",  # noqa: S608
            (
                now_us,
                f"{table} {' '.join(place)}",
                "; ".join(f"{name} is text that cannot be read" for name in damaged)
                or "its lane was set aside, or is not there",
                f"INSERT INTO {table} ({', '.join(kinds)}) VALUES ({', '.join(literals)});",  # noqa: S608
            ),
        )
    return len(rows)


def _is_utf8(value: Any = None, *_: Any) -> bool:  # noqa: ANN401  (as SQLite calls it)
    try:
        value.decode()
    except (AttributeError, UnicodeDecodeError):
        return False
    return True


def _literal(value: int | bytes | None, *, is_text: bool) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(value)
    if not is_text:
        return f"x'{value.hex()}'"
    if _is_utf8(value) and b"\0" not in value:
        return "'" + value.decode().replace("'", "''") + "'"
    return f"CAST(x'{value.hex()}' AS TEXT)"


def _shown(value: int | bytes, *, is_text: bool) -> str:
    if isinstance(value, bytes):
        return repr(value.decode(errors="backslashreplace")) if is_text else value.hex()
    return str(value)


def compare_indexes(database: apsw.Connection, is_over: Callable[[], bool]) -> list[str] | None:
    """Compare all indexes with their tables, until `is_over` returns true.

    Returns:
      The first differences; None if it took too long.
    """
    database.set_progress_handler(is_over, _PROGRESS_STEPS)
    try:
        query = f"PRAGMA integrity_check({_SHOWN_MAX})"
        differences = [str(row[0]) for row in database.execute(query)]
    except apsw.InterruptError:
        return None
    finally:
        database.set_progress_handler(None)
    return [] if differences == ["ok"] else differences


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
