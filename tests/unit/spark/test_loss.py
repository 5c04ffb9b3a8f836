"""What has expired below a reader is told (P3)."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dueline import Dueline
from dueline.core.errors import StoreCorrupt
from dueline.core.ids import Ids
from dueline.jobs import history
from dueline.log import trimming
from tests.harness.spark.readers import follower_of, limit_of, numbers, row, rows_between, walk
from tests.harness.spark.tables import app_with_a_past, live_on, made, quiet


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Dueline]:
    """Open a store whose stream has a row in each of ten minutes."""
    made = Dueline(f"sqlite:///{tmp_path / 'log.db'}")
    made.store.append([row("log", number, number * 60_000_000) for number in range(1, 11)])
    yield made
    made.close()


def expire(app: Dueline, before: int) -> None:
    """Let go of the rows before a minute."""
    trimming.trim(app.store, "log", 0, before_us=before * 60_000_000, version=Ids().token())


def batch_of(app: Dueline, **options: str) -> Any:
    """Make the reader of a table as Spark would."""
    from pyspark_dueline import DefaultSource

    source = DefaultSource({"store": app.url, "table": "stream", "stream": "log"} | options)
    return source.reader(schema=source.schema())


def read_once(reader: Any) -> list[int]:
    """Read all of a table."""
    parts = reader.partitions()
    return numbers(
        [row for part in parts for some in reader.read(part) for row in some.to_pylist()]
    )


def at(number: int) -> str:
    """Write the offset behind a row."""
    return json.dumps({"s": {"log/00000": [number * 60_000_000, (b"%08d" % number).hex()]}, "v": 1})


def test_a_query_that_was_overtaken_fails_and_names_what_is_kept(app: Dueline) -> None:
    reader = follower_of(app, "log", maxRowsPerTrigger="2")
    start = reader.initialOffset()
    end = reader.latestOffset(start, limit_of(reader))
    expire(app, 3)
    later = reader.latestOffset(end, limit_of(reader))  # only what it has read went
    assert numbers(rows_between(reader, end, later)) == [3, 4]
    expire(app, 8)
    words = r"log/00000 after 240000000 .* 420000000 .*oldest kept row is at 480000000 \(1970-01-01"
    with pytest.raises(StoreCorrupt, match=words):
        reader.latestOffset(later, limit_of(reader))
    with pytest.raises(StoreCorrupt, match="oldest kept"):  # as does the replay of a batch
        list(rows_between(reader, end, later))


def test_a_query_that_goes_on_says_what_it_skips(
    app: Dueline, caplog: pytest.LogCaptureFixture
) -> None:
    reader = follower_of(app, "log", failOnDataLoss="false", maxRowsPerTrigger="2")
    start = reader.latestOffset(reader.initialOffset(), limit_of(reader))
    expire(app, 8)
    with caplog.at_level(logging.WARNING, "dueline.spark"):
        found = [number for some in walk(reader, start) for number in numbers(some)]
    assert found == [8, 9, 10]
    assert [one.message[:40] for one in caplog.records] == [
        "dataLoss: Rows of log/00000 after 120000"
    ]


def test_what_expires_between_plan_and_read_is_told(app: Dueline) -> None:
    reader = follower_of(app, "log")
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, limit_of(reader)))
    expire(app, 4)
    with pytest.raises(StoreCorrupt, match="expired up to 180000000"):
        [batch for part in parts for batch in reader.read(part)]


def test_a_calm_query_misses_nothing_however_long_it_waits(app: Dueline) -> None:
    reader = follower_of(app, "log")
    end = reader.latestOffset(reader.initialOffset(), limit_of(reader))
    trimming.trim(app.store, "log", 0, before_us=app.store.clock_us(), version=Ids().token())
    assert reader.latestOffset(end, limit_of(reader)) == end


def test_the_earliest_is_what_is_kept(app: Dueline, caplog: pytest.LogCaptureFixture) -> None:
    expire(app, 8)
    kept = [8, 9, 10]
    assert [numbers(some) for some in walk(follower_of(app, "log"))] == [kept]
    reader = batch_of(app)
    assert read_once(reader) == kept
    assert not caplog.records
    parts = reader.partitions()
    expire(app, 9)
    assert [numbers(some.to_pylist()) for part in parts for some in reader.read(part)] == [[9, 10]]
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    "start", [{"startingOffsets": at(5)}, {"startingTimestamp": "1970-01-01T00:06:00"}]
)
def test_a_table_that_is_asked_for_from_a_place_is_whole_or_an_error(
    app: Dueline, start: dict[str, str]
) -> None:
    expire(app, 6)
    assert read_once(batch_of(app, **start)) == [6, 7, 8, 9, 10]
    expire(app, 8)
    with pytest.raises(StoreCorrupt, match="oldest kept row is at 480000000"):
        batch_of(app, **start).partitions()
    assert read_once(batch_of(app, failOnDataLoss="false", **start)) == [8, 9, 10]


def test_retention_of_history_and_streams_tells_what_went(tmp_path: Path) -> None:
    from dueline.monitor.retention import expire_history

    app = Dueline(f"sqlite:///{tmp_path / 'kept.db'}")
    app.queue("mail", shards=1)
    app.store.append([row("mail!history", 1, 5)])
    clicks = app.stream("clicks", keep=3600)
    clicks.append({})
    app.store.append([row("clicks", 1, 5)])
    assert expire_history(app.queues.engine, None).acts == 1
    clicks.expire()
    assert trimming.places(app.store, "mail!history") == {0: (5, b"00000001")}
    assert trimming.places(app.store, "clicks") == {0: (5, b"00000001")}
    app.close()


def test_a_history_that_went_before_it_was_copied_is_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dueline.cli import run
    from dueline.spark.pipeline.delta import place_of

    app = app_with_a_past(tmp_path)
    pipe = made(tmp_path / "lake", app, queues=("mail",))
    pipe.run(["bronze"], quiet)
    _forget(app)
    pipe.run([], quiet)  # only what was copied went
    live_on(app, 60)
    assert pipe.run(["bronze"], quiet)[0].rows
    live_on(app, 70)
    _forget(app)
    with pytest.raises(StoreCorrupt, match=r"history of mail/0000\d was copied up to 20.* expired"):
        pipe.run([], quiet)
    words = ["--store", app.url, "pipeline", "run", "--engine", "duckdb", "--queue", "mail"]
    assert run([*words, "--out", str(tmp_path / "lake")]) == 6
    assert "dueline: history expired before it was copied" in capsys.readouterr().err
    with pytest.raises(StoreCorrupt, match="expired up to"):
        pipe.archive(place_of(str(tmp_path / "there")), quiet)
    assert not (tmp_path / "there").exists()
    made(tmp_path / "anew", app, queues=("mail",)).run([], quiet)


def _forget(app: Dueline) -> None:
    """Let go of all that was told by now."""
    now_us = app.queues.engine.time.latest_us()
    history.forget(app.queues.engine.store, "mail", 3, before_us=now_us, version=Ids().token())


def test_rows_that_went_with_their_shard_are_told(app: Dueline) -> None:
    past = "mail" + history.HISTORY_SUFFIX
    app.queues.engine.catalog.configure("mail", shards=2)
    app.store.append(
        [row(past, number, number * 60_000_000)._replace(shard=1) for number in (1, 2)]
    )
    reader = follower_of(app, table="events", queue="mail")
    start = reader.initialOffset()
    trimming.trim(app.store, past, 1, before_us=180_000_000, version=Ids().token())
    app.queues.engine.catalog.configure("mail", shards=1)
    entry = app.queues.engine.catalog.entry("mail")
    assert entry is not None
    assert app.queues.engine.catalog.narrow("mail", entry)
    assert app.queues.engine.catalog.settings("mail").shards_read == 1
    with pytest.raises(StoreCorrupt, match="Rows of mail"):
        reader.latestOffset(start, limit_of(reader))
