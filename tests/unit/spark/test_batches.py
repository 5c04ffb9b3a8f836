"""A followed stream in batches: whatever their size, each row is in one of them (P3)."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from dueline import Dueline
from dueline.core.store import Row, Store
from dueline.jobs.history import (
    HISTORY_SUFFIX,
    row_of_enqueue,
    rows_of_ended,
    rows_of_enqueued,
)
from dueline.jobs.history_batch import size_of
from dueline.stores.memory.store import MemoryStore
from tests.harness.clocks import HandClock
from tests.harness.history_rows import claimed, done_of
from tests.harness.spark.readers import follower_of, walk

STREAM = "mail" + HISTORY_SUFFIX
AT_US = 1_000_000
NAMES = ("mail/00000", "mail/00001")


def enqueued(number: int, at_us: int) -> Row:
    """Make the enqueue event of a job."""
    job = claimed(number)._replace(enqueued_us=at_us)
    return row_of_enqueue(job, with_arguments=False)._replace(at_us=at_us)


def bulk(first: int, count: int, at_us: int) -> list[Row]:
    """Make the enqueue events of one bulk call: all have one timestamp."""
    return [enqueued(number, at_us) for number in range(first, first + count)]


def bundle(first: int, count: int, at_us: int) -> list[Row]:
    """Make the row that stands for attempts that ended together."""
    rows = rows_of_ended(done_of([claimed(number) for number in range(first, first + count)]))
    return [row._replace(at_us=at_us) for row in rows]


def together(first: int, count: int, at_us: int) -> list[Row]:
    """Make the rows of jobs that one call enqueues and one transaction ends, by columns."""
    jobs = [claimed(number) for number in range(first, first + count)]
    rows = [*rows_of_enqueued(jobs, with_arguments=False), *rows_of_ended(done_of(jobs))]
    return [row._replace(at_us=at_us) for row in rows]


def appended(first: int, count: int, at_us: int) -> list[Row]:
    """Make the events of one call of `append_many`."""
    return [
        Row(STREAM, 0, at_us, b"%016d" % number, b"{}") for number in range(first, first + count)
    ]


def mixed(seed: int) -> list[Row]:
    """Make a history of all kinds of rows, many at one timestamp, in two shards."""
    chance = random.Random(seed)
    rows: list[Row] = []
    at_us = AT_US
    for start in range(0, 140, 20):
        make = chance.choice([bulk, bundle, together, appended])
        some = make(1000 * start, chance.randint(1, 12), at_us)
        rows += [row._replace(shard=chance.choice([0, 0, 1])) for row in some]
        at_us += chance.choice([0, 0, 1, 700])
    return rows


HISTORIES = {
    "one bulk call": bulk(1, 40, AT_US),
    "bulk calls one after the other": [*bulk(1, 15, AT_US), *bulk(50, 15, AT_US + 1)],
    "append_many": appended(1, 40, AT_US),
    "bundles at one timestamp": [
        row for first in range(1, 40, 5) for row in bundle(first, 4, AT_US)
    ],
    "columns at one timestamp": [
        row for first in range(1, 40, 5) for row in together(first, 4, AT_US)
    ],
    **{f"mixed {seed}": mixed(seed) for seed in range(12)},
}


@pytest.fixture(params=HISTORIES)
def history(request: pytest.FixtureRequest) -> tuple[Store, list[Row]]:
    """Lay a history in a store."""
    rows = HISTORIES[request.param]
    store = MemoryStore(HandClock())
    store.append(rows)
    return store, rows


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few rows be enough to be cut."""
    from dueline.spark.reading import partitions

    monkeypatch.setattr(partitions, "PROBE", 4)


def batches_of(store: Store, most: int, parts: int) -> Iterator[tuple[int, list[Row]]]:
    """Plan and read batch after batch, as the reader of a stream does; tell how many had room."""
    from dueline.spark.reading.offsets import within
    from dueline.spark.reading.partitions import (
        START,
        RowSlice,
        behind,
        places_in,
        plan,
        rows_of,
    )

    places = dict.fromkeys(NAMES, START)
    end = behind(AT_US + 1_000_000)
    while True:
        waiting = {
            name: list(places_in(store, RowSlice(STREAM, shard, places[name], end), most))
            for shard, name in enumerate(NAMES)
        }
        ends = within(waiting, most)
        if not ends:
            return
        read: list[Row] = []
        for shard, name in enumerate(NAMES):
            if name in ends:
                whole = RowSlice(STREAM, shard, places[name], ends[name])
                for one in chain.from_iterable(plan(store, [whole], parts)):
                    read += [row for page in rows_of(store, one, page=7) for row in page]
        yield max(map(size_of, read)), read
        places |= ends


def test_batches_of_any_size_come_to_the_rows_of_one(history: tuple[Store, list[Row]]) -> None:
    store, rows = history
    wanted = Counter((row.shard, row.id) for row in rows)
    total = sum(map(size_of, rows))
    for parts in (1, 2, 8):
        for most in range(1, total + 2):
            found: list[Row] = []
            for largest, batch in batches_of(store, most, parts):
                assert sum(map(size_of, batch)) <= max(most, largest)
                found += batch
            assert Counter((row.shard, row.id) for row in found) == wanted, (parts, most)
    assert wanted.total() == len(wanted)


def test_any_slice_in_any_number_of_parts_holds_the_same_rows(
    history: tuple[Store, list[Row]],
) -> None:
    from dueline.spark.reading.partitions import START, RowSlice, plan, rows_of

    store, rows = history
    places = [START, *sorted(row[2:4] for row in rows if row.shard == 0)]
    for start in range(0, len(places), 3):
        for after, until in zip(places, places[start:], strict=False):
            whole = RowSlice(STREAM, 0, after, until)
            wanted = sorted(row.id for row in rows if not row.shard and after < row[2:4] <= until)
            for parts in (1, 3, 40):
                cut = chain.from_iterable(plan(store, [whole], parts))
                found = [
                    row.id for one in cut for page in rows_of(store, one, page=3) for row in page
                ]
                assert sorted(found) == wanted, (after, until, parts)


def test_a_batch_that_ends_inside_a_timestamp_is_read_no_further(
    history: tuple[Store, list[Row]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dueline.spark.reading.partitions import START, RowSlice, rows_of

    store, rows = history
    first = min(row[2:4] for row in rows if row.shard == 0)
    asked: list[int] = []
    tail = store.tail

    def counted(*args: Any, **terms: Any) -> Any:
        asked.append(1)
        return tail(*args, **terms)

    monkeypatch.setattr(store, "tail", counted)
    assert len(list(rows_of(store, RowSlice(STREAM, 0, START, first), page=2))) == 1
    assert len(asked) <= 2


def read_out(app: Dueline, most: int, **options: str) -> Sequence[str]:
    """Follow a stream to its end by the reader that Spark makes; tell the ids."""
    reader = follower_of(app, maxRowsPerTrigger=str(most), minPartitions="8", **options)
    reader.prepareForTriggerAvailableNow()
    return [str(one["id"]) for some in walk(reader) for one in some]


def test_what_a_bulk_call_enqueues_is_followed_once(tmp_path: Path) -> None:
    app = Dueline(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=NORMAL")
    app.queue("mail", history="all")

    @app.task(name="note", queue="mail")
    def note(number: int) -> None:
        pass

    note.enqueue_many([(number,) for number in range(60)])
    app.run_worker(burst=True)
    app.stream("clicks").append_many([({"n": number}, None) for number in range(60)])
    whole = read_out(app, 10_000)
    assert len(whole) == len(set(whole)) == 120
    for most in (7, 59, 61):
        assert sorted(read_out(app, most)) == sorted(whole), most
        assert len(set(read_out(app, most, stream="clicks"))) == 60
        assert len(read_out(app, most, stream="clicks")) == 60
    app.close()


@pytest.mark.long
def test_a_bulk_call_is_followed_once_on_spark(spark: Any, tmp_path: Path) -> None:
    app = Dueline(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=NORMAL")
    app.queue("mail", history="all")

    @app.task(name="note", queue="mail")
    def note(number: int) -> None:
        pass

    note.enqueue_many([(number,) for number in range(20_000)])
    out = tmp_path / "out"
    query = (
        spark.readStream.format("dueline")
        .options(store=app.url, table="attempts", maxRowsPerTrigger=3000)
        .load()
        .select("id")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(out))
    )
    assert query.awaitTermination(500)
    assert [one["numInputRows"] for one in query.recentProgress] == [3000] * 6 + [2000]
    read = spark.read.parquet(str(out))
    assert read.count() == read.distinct().count() == 20_000
    app.close()
