"""Streams as they grow: the reader by hand, then a query on Spark (P3)."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dueline import BadInput, Dueline
from dueline.core.errors import StoreCorrupt
from dueline.jobs.history import attempts
from tests.harness.spark.readers import follower_of, limit_of, numbers, row, rows_between, walk


def test_batches_of_so_many_rows_come_to_all_rows(shop: Dueline) -> None:
    reader = follower_of(shop, maxOffsetsPerTrigger="200")
    found = list(walk(reader))
    expected = Counter(
        (one.job, one.fence)
        for queue, shards in (("mail", 4), ("bills", 2))
        for one in attempts(shop.store, queue, shards)
    )
    assert Counter((one["job_id"], one["attempt"]) for some in found for one in some) == expected
    assert len(found) > 5
    assert max(map(len, found)) <= 200 + 6  # each shard gets one at least
    whole = list(walk(follower_of(shop)))
    assert len(whole) == 1
    assert len(whole[0]) == sum(expected.values())


def test_a_shard_with_little_is_not_kept_waiting_by_one_with_much(shop: Dueline) -> None:
    from dueline.spark.reading.offsets import shared

    assert shared({"much": 1000, "little": 1, "none": 0}, 10) == {"much": 9, "little": 1}
    assert shared({"much": 1000, "little": 1}, 2000) == {"much": 1000, "little": 1}


def test_an_offset_is_the_same_text_while_nothing_is_new(shop: Dueline) -> None:
    shop.store.append([row("calm", 1, 5)])
    reader = follower_of(shop, "calm")
    first = reader.latestOffset(reader.initialOffset(), limit_of(reader))
    mark = shop.store.close_until("calm", 0, at_us=-1)
    again = follower_of(shop, "calm").latestOffset(first, limit_of(reader))
    assert json.dumps(again) == json.dumps(first)
    assert json.dumps(first) == json.dumps(first, sort_keys=True)
    assert shop.store.close_until("calm", 0, at_us=-1) == mark  # nor was anything written
    shop.store.close_until("calm", 0, at_us=mark + 1000)
    assert reader.latestOffset(first, limit_of(reader)) == first


def test_a_row_that_comes_late_is_read_and_none_twice(shop: Dueline) -> None:
    shop.store.append([row("late", 1, 5_000)])
    reader = follower_of(shop, "late")
    start = reader.initialOffset()
    end = reader.latestOffset(start, limit_of(reader))
    shop.store.append([row("late", 2, 4_000)])
    assert numbers(rows_between(reader, start, end)) == [1]
    assert [numbers(some) for some in walk(reader, end)] == [[2]]


def test_the_latest_needs_a_name_and_begins_where_it_began(shop: Dueline) -> None:
    with pytest.raises(BadInput, match="needs a name"):
        follower_of(shop, "fresh", startingOffsets="latest")
    shop.store.append([row("fresh", 1, 5)])
    options = {"startingOffsets": "latest", "consumer": "billing"}
    first = follower_of(shop, "fresh", **options).initialOffset()
    shop.store.append([row("fresh", 2, shop.store.clock_us())])
    reader = follower_of(shop, "fresh", **options)  # after a crash in the first batch
    assert reader.initialOffset() == first
    assert [numbers(some) for some in walk(reader)] == [[2]]


def test_a_query_can_begin_at_a_time_or_an_offset(shop: Dueline) -> None:
    second = 1_000_000
    shop.store.append([row("times", number, number * second) for number in range(6)])
    reader = follower_of(shop, "times", startingTimestamp="1970-01-01T00:00:04Z")
    assert [numbers(some) for some in walk(reader)] == [[4, 5]]
    offset = json.dumps({"s": {"times/00000": [3 * second, b"00000003".hex()]}, "v": 1})
    reader = follower_of(shop, "times", startingOffsets=offset)
    assert [numbers(some) for some in walk(reader)] == [[4, 5]]
    with pytest.raises(BadInput, match="is in the future"):
        follower_of(shop, "times", startingTimestamp="2999-01-01").initialOffset()


def test_a_store_that_was_set_back_is_data_loss(shop: Dueline, tmp_path: Path) -> None:
    shop.store.append([row("backup", 1, 5)])
    reader = follower_of(shop, "backup")
    end = reader.latestOffset(reader.initialOffset(), limit_of(reader))
    older = Dueline(f"sqlite:///{tmp_path / 'older.db'}")
    older.store.append([row("backup", 1, 5)])
    with pytest.raises(StoreCorrupt, match=r"backup/00000.*went back"):
        follower_of(older, "backup").latestOffset(end, limit_of(reader))
    lenient = follower_of(older, "backup", failOnDataLoss="false")
    assert lenient.latestOffset(end, limit_of(reader)) == end
    older.close()


def test_an_offset_that_goes_back_or_names_a_lost_shard_is_data_loss(shop: Dueline) -> None:
    shop.store.append([row("back", 1, 5)])
    reader = follower_of(shop, "back")
    high, low = ({"s": {"back/00000": [at_us, ""]}, "v": 1} for at_us in (9, 3))
    with pytest.raises(StoreCorrupt, match="goes back in back/00000, from 9 to 3"):
        reader.partitions(high, low)
    gone = {"s": {"back/00000": [9, ""], "back/00007": [9, ""]}, "v": 1}
    with pytest.raises(StoreCorrupt, match="back/00007 of the offset does not exist"):
        reader.partitions(low, gone)


def test_what_is_available_now_ends_though_more_is_appended(shop: Dueline) -> None:
    shop.store.append([row("now", 1, 5)])
    reader = follower_of(shop, "now")
    reader.prepareForTriggerAvailableNow()
    shop.store.append([row("now", 2, shop.store.clock_us())])
    batches = walk(reader)
    assert numbers(next(batches)) == [1]
    shop.store.append([row("now", 3, shop.store.clock_us())])
    assert list(batches) == []


def test_a_shard_that_is_new_is_read_from_its_start(tmp_path: Path) -> None:
    app = Dueline(f"sqlite:///{tmp_path / 'grown.db'}")
    app.queues.engine.catalog.configure("grown", shards=1)
    app_rows = [row("grown!history", number, 5 + number, shard=number) for number in range(2)]
    app.store.append(app_rows[:1])
    options = {"table": "events", "queue": "grown"}
    reader = follower_of(app, **options)
    end = reader.latestOffset(reader.initialOffset(), limit_of(reader))
    assert list(end["s"]) == ["grown/00000"]
    app.queues.engine.catalog.configure("grown", shards=2)
    app.store.append(app_rows[1:])
    later = reader.latestOffset(end, limit_of(reader))
    assert list(later["s"]) == ["grown/00000", "grown/00001"]
    assert [part.slices[0].shard for part in reader.partitions(end, later)] == [1]
    app.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"table": "jobs"}, "cannot be followed"),
        ({"table": "results"}, "table results .*cannot be followed"),
        ({"table": "shards"}, "cannot be followed"),
        ({"table": "workers"}, "cannot be followed"),
        ({"endingTimestamp": "2026-01-01"}, "A stream has no end"),
        ({"minRowsPerTrigger": "9", "maxRowsPerTrigger": "8"}, "must be at most maxRows"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay: .*is not a duration"),
        ({"startingOffsets": "newest"}, "is not a position"),
        ({"startingOffsets": '{"v": 9}'}, "is not an offset that this version reads"),
        ({"maxRowsPerTriger": "1"}, "Did you mean maxRowsPerTrigger"),
    ],
)
def test_what_cannot_be_followed_is_refused(
    shop: Dueline, options: Mapping[str, str], words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        follower_of(shop, **options).initialOffset()


def test_spark_asks_often_and_the_store_is_asked_seldom(
    shop: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dueline.spark.reading import stream_reader

    reader = follower_of(shop, "idle", pollInterval="60000")
    start = reader.initialOffset()
    assert reader.latestOffset(start, limit_of(reader)) == start
    monkeypatch.setattr(stream_reader, "existing_engine", None)
    assert reader.latestOffset(start, limit_of(reader)) == start


def test_a_file_is_asked_sooner_than_a_server_where_nobody_says_how_often(
    shop: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dueline.spark.reading import stream_reader
    from dueline.spark.source import DuelineSource

    source = DuelineSource({"store": shop.url, "table": "stream", "stream": "idle"})
    reader: Any = source.streamReader(source.schema())
    start = reader.initialOffset()
    monkeypatch.setattr(stream_reader, "POLL_MS", 60_000)
    monkeypatch.setattr(stream_reader, "POLL_FILE_MS", 0)
    assert reader.latestOffset(start, limit_of(reader)) == start
    shop.store.append([row("idle", 1, 10)])
    assert reader.latestOffset(start, limit_of(reader)) != start


def test_a_batch_tells_how_many_rows_wait_behind_it_and_how_old_they_are(shop: Dueline) -> None:
    now_us = shop.store.clock_us()
    ago = [now_us - (60 - number) * 1_000_000 for number in range(60)]
    shop.store.append([row("behind", number, at_us) for number, at_us in enumerate(ago)])
    reader = follower_of(shop, "behind", maxRowsPerTrigger="20")
    start = reader.initialOffset()
    told = []
    while (end := reader.latestOffset(start, limit_of(reader))) != start:
        told.append(reader.reportLatestOffset())
        start = end
    assert [one["rowsBehind"] for one in told] == [40, 20, 0]
    assert [round(one["secondsBehind"]) for one in told] == pytest.approx([40, 20, 0], abs=5)
    assert told[0]["s"]["behind/00000"][0] >= ago[-1]
    assert told[-1]["secondsBehind"] == 0


def test_more_rows_than_are_counted_are_told_as_more(
    shop: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dueline.spark.reading import lag

    monkeypatch.setattr(lag, "COUNTED_MAX", 10)
    shop.store.append([row("much", number, 10 + number) for number in range(60)])
    reader = follower_of(shop, "much", maxRowsPerTrigger="20")
    reader.latestOffset(reader.initialOffset(), limit_of(reader))
    told = reader.reportLatestOffset()
    assert (told["rowsBehind"], told["isMore"]) == (10, True)


def test_a_batch_waits_for_its_least_rows_or_for_the_delay(
    shop: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    options = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "1m"}
    reader = follower_of(shop, "least", **options)
    start = reader.initialOffset()
    shop.store.append([row("least", 0, 5)])
    first = reader.latestOffset(start, limit_of(reader))
    assert first != start  # a new query, or one that restarts, waits for nothing
    shop.store.append([row("least", number, shop.store.clock_us()) for number in range(1, 9)])
    assert reader.latestOffset(first, limit_of(reader)) == first
    assert reader.reportLatestOffset()["rowsBehind"] == 8
    now_s += 59
    assert reader.latestOffset(first, limit_of(reader)) == first
    now_s += 2
    second = reader.latestOffset(first, limit_of(reader))
    assert numbers(rows_between(reader, first, second)) == [*range(1, 9)]
    shop.store.append([row("least", number, shop.store.clock_us()) for number in range(9, 20)])
    third = reader.latestOffset(second, limit_of(reader))
    assert numbers(rows_between(reader, second, third)) == [*range(9, 20)]
    shop.store.append([row("least", 20, shop.store.clock_us())])
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(third, limit_of(reader)) != third


@pytest.mark.long
def test_the_progress_of_a_query_tells_how_far_behind_it_is(
    spark: Any, shop: Dueline, tmp_path: Path
) -> None:
    from dueline.spark import lag

    shop.store.append([row("progress", number, 10 + number) for number in range(300)])
    frame = spark.readStream.format("dueline").options(
        store=shop.url, table="stream", stream="progress", maxRowsPerTrigger=100
    )
    writer = frame.load().writeStream.foreachBatch(lambda some, _batch: some.count())
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(processingTime="0 seconds").start()
    query.processAllAvailable()
    told = [one for one in query.recentProgress if one["numInputRows"]]
    assert lag(query) == (0, 0, False)
    query.stop()
    found = [lag(SimpleNamespace(lastProgress=one)) for one in told]
    assert [one.rows for one in found] == [200, 100, 0]
    assert [one.seconds > 1_000_000 for one in found] == [True, True, False]  # since 1970


@pytest.mark.long
def test_a_query_whose_last_commit_is_lost_reads_no_row_twice(
    spark: Any, shop: Dueline, tmp_path: Path
) -> None:
    shop.store.append([row("query", number, 10 + number) for number in range(300)])
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"

    def drain() -> Counter[int]:
        frame = spark.readStream.format("dueline").options(
            store=shop.url, table="stream", stream="query", maxRowsPerTrigger=100
        )
        query = (
            frame.load()
            .selectExpr("cast(id AS string) AS id")
            .writeStream.format("json")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start(str(out))
        )
        assert query.awaitTermination(300)
        return Counter(
            int(one.id) for one in spark.read.schema("id string").json(str(out)).collect()
        )

    assert drain() == Counter(range(300))
    commits = [file for file in (checkpoint / "commits").iterdir() if file.name.isdecimal()]
    assert len(commits) == 3
    (checkpoint / "commits" / "2").unlink()
    (checkpoint / "commits" / ".2.crc").unlink(missing_ok=True)
    shop.store.append([row("query", 300, shop.store.clock_us())])
    assert drain() == Counter(range(301))
