"""Streams against a raw log in SQLite, round by round.

The raw log is one table, keyed by (stream, shard, at, id), written with `executemany` in
transactions of as many rows, its bodies written and read by the very JSON library.
"""

import os
import time
from pathlib import Path
from typing import Any, Final, cast

import apsw
import msgspec

from benchmarks import ours
from benchmarks.ours import TEXT
from benchmarks.rounds import Rounds
from dueline import Dueline
from dueline.streams.stream import CHUNK

SHARDS: Final = 6

_TABLE: Final = (
    "CREATE TABLE log (stream TEXT, shard INTEGER, at INTEGER, id BLOB, body BLOB,"
    " PRIMARY KEY (stream, shard, at, id)) WITHOUT ROWID"
)
_INSERT: Final = "INSERT INTO log VALUES (?, ?, ?, ?, ?)"
_READ: Final = (
    "SELECT at, id, body FROM log WHERE stream = ? AND shard = ? AND (at, id) > (?, ?)"
    " ORDER BY at, id LIMIT 2000"
)


def run(rounds: Rounds, folder: Path, synchronous: str, *, events: int) -> None:
    """Time each once."""
    values = [({"number": number, "text": TEXT}, str(number % 100)) for number in range(events)]
    _raw(rounds, folder / "raw_log.db", synchronous, values)
    for shards, suffix in ((1, ""), (SHARDS, ", sharded")):
        app = Dueline(ours.sqlite(folder / f"log{shards}.db", synchronous))
        log = app.stream("log", shards=shards)
        with rounds.timed(f"append events{suffix}", events):
            log.append_many(values)
        with rounds.timed(f"read events{suffix}", events):
            found = sum(event.value["number"] >= 0 for event in log.read())
        assert found == events
        app.close()


def _raw(rounds: Rounds, path: Path, synchronous: str, values: list[tuple[Any, str]]) -> None:
    database = apsw.Connection(str(path))
    database.execute("PRAGMA journal_mode = WAL")
    database.execute(f"PRAGMA synchronous = {synchronous}")
    database.execute(_TABLE)
    encoder, decoder = msgspec.json.Encoder(), msgspec.json.Decoder()
    with rounds.timed("raw append", len(values)):
        for start in range(0, len(values), CHUNK):
            at, head = time.time_ns() // 1000, os.urandom(8)
            database.execute("BEGIN IMMEDIATE")
            database.executemany(
                _INSERT,
                (
                    ("log", 0, at, head + number.to_bytes(8), encoder.encode([key, value]))
                    for number, (value, key) in enumerate(values[start : start + CHUNK])
                ),
            )
            database.execute("COMMIT")
    with rounds.timed("raw read", len(values)):
        found, place = 0, cast(Any, (0, b""))
        while page := cast(list[Any], database.execute(_READ, ("log", 0, *place)).fetchall()):
            found += sum(decoder.decode(body)[1]["number"] >= 0 for _, _, body in page)
            place = page[-1][:2]
    assert found == len(values)
    database.close()
