"""Huey's application: `python -m huey.bin.huey_consumer benchmarks.huey_app.huey`.

BENCH_FILE is its SQLite file, BENCH_SYNCHRONOUS how it flushes: FULL is its default, OFF its
`fsync=False`; NORMAL is put in beneath it. It keeps no results: its fastest setting.
"""

import os
from typing import Any

from huey import Huey
from huey.storage import SqliteStorage

from benchmarks.marks import write_mark, write_start

SYNCHRONOUS = os.environ.get("BENCH_SYNCHRONOUS", "FULL")


class Storage(SqliteStorage):  # type: ignore[misc]  # huey has no types
    """Its own storage, with the flushes asked for."""

    def _create_connection(self) -> Any:  # noqa: ANN401
        connection = super()._create_connection()
        connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
        return connection


huey = Huey("bench", storage_class=Storage, filename=os.environ["BENCH_FILE"], results=False)


@huey.task(name="noop")  # type: ignore[untyped-decorator]  # huey has no types
def noop(text: str) -> None:
    """Return at once."""
    del text


@huey.task(name="mark")  # type: ignore[untyped-decorator]  # huey has no types
def mark(path: str) -> None:
    """Write down the time, and the time of the processor that this process has used."""
    write_mark(path)


@huey.task(name="start")  # type: ignore[untyped-decorator]  # huey has no types
def start(due_ns: int) -> None:
    """Write down how late this starts, in nanoseconds."""
    write_start(due_ns)
