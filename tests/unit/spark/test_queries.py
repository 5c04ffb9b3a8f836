"""Queries on a real Spark that run while the store changes (P3)."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dueline import Dueline
from tests.harness.spark.readers import follower_of

RESTS_S = 1.5
"""How long nothing is new: Spark asks some 100 times."""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Dueline]:
    """Open a store with a stream of two shards."""
    made = Dueline(f"sqlite:///{tmp_path / 'live.db'}?synchronous=NORMAL")
    made.stream("live", shards=2).append_many([(number, None) for number in range(50)])
    yield made
    made.close()


def started(
    spark: Any, app: Dueline, found: list[tuple[int, bytes]], checkpoint: Path, **options: Any
) -> Any:
    """Begin a query that notes each row with its batch, in a session that prunes nothing."""

    def note(frame: Any, batch: int) -> None:
        found.extend((batch, bytes(row.id)) for row in frame.select("id").collect())

    is_now = options.pop("available_now", False)
    source = {"store": app.url, "table": "stream", "stream": "live", "pollInterval": 0} | options
    writer = spark.readStream.format("dueline").options(**source).load().writeStream
    writer = writer.foreachBatch(note).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(availableNow=True) if is_now else writer).start()


def ids(app: Dueline) -> Counter[bytes]:
    """Count what was appended."""
    return Counter(event.row.id for event in app.stream("live").read())


@pytest.mark.long
def test_a_query_sees_new_shards_while_it_runs_and_rests_when_nothing_is_new(
    spark: Any, app: Dueline, tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        found: list[tuple[int, bytes]] = []
        query = started(spark, app, found, tmp_path / "checkpoint")
        query.processAllAvailable()
        assert len(found) == 50
        app.stream("live").reshard(3)
        app.stream("live").append_many([(number, None) for number in range(40)])
        query.processAllAvailable()
        assert Counter(one for _, one in found) == ids(app)
        before = query.lastProgress["batchId"]
        time.sleep(RESTS_S)  # that nothing happens takes a while to be seen
        assert max(batch for batch, _ in found) == query.lastProgress["batchId"] == before
        query.stop()
        frame = spark.read.format("dueline").options(store=app.url, table="stream", stream="live")
        assert frame.option("fetchSize", 7).load().count() == 90
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


@pytest.mark.long
def test_what_is_available_now_ends_and_a_crash_before_the_first_commit_loses_nothing(
    spark: Any, app: Dueline, tmp_path: Path
) -> None:
    latest = {"startingOffsets": "latest", "consumer": "billing"}
    follower_of(app, "live", **latest).initialOffset()  # here it began
    app.stream("live").append_many([(number, None) for number in range(50, 80)])
    is_over = threading.Event()

    def produce() -> None:
        producer = Dueline(app.url)
        while not is_over.is_set():
            producer.stream("live").append("more")
            time.sleep(0.01)  # so that the store stays small
        producer.close()

    producer = threading.Thread(target=produce, daemon=True)
    producer.start()
    found: list[tuple[int, bytes]] = []
    checkpoint = tmp_path / "checkpoint"
    query = started(spark, app, found, checkpoint, available_now=True, **latest)
    ended = query.awaitTermination(300)
    is_over.set()
    producer.join()
    assert ended
    first = {one for batch, one in found if batch == 0}
    assert len(first) >= 30
    for file in (checkpoint / "commits").iterdir():
        file.unlink()
    again: list[tuple[int, bytes]] = []
    query = started(spark, app, again, checkpoint, available_now=True, **latest)
    assert query.awaitTermination(300)
    assert {one for batch, one in again if batch == 0} == first
    everything = {one for _, one in again}
    assert len(everything) == len(ids(app)) - 50
