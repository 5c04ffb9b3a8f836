"""Streams that are cut anew while they are followed (P3)."""

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dueline import Dueline
from tests.harness.spark.readers import follower_of, limit_of, rows_between, walk

KEYS = 30
ROUNDS = 60


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Dueline]:
    """Open a store."""
    made = Dueline(f"sqlite:///{tmp_path / 'cut.db'}?synchronous=NORMAL")
    yield made
    made.close()


def told(batches: list[list[Mapping[str, Any]]]) -> dict[str, list[int]]:
    """Tell by key what was read, as whoever sorts each batch by its positions reads it."""
    from dueline.core.store import Row
    from dueline.streams.event import Event

    found = defaultdict(list)
    for batch in batches:
        for one in sorted(batch, key=lambda one: (one["at"], one["id"])):
            event = Event(Row("load", one["shard"], 0, one["id"], one["body"]))
            found[event.key or ""].append(int(event.value))
    return dict(found)


@pytest.mark.parametrize("most", ["0", "50"])
def test_a_stream_cut_under_load_loses_nothing_and_keys_stay_in_order(
    app: Dueline, most: str
) -> None:
    app.stream("load", shards=8).append_many([(0, f"k{key}") for key in range(KEYS)])
    cut = threading.Event()

    def produce() -> None:
        producer = Dueline(app.url)  # as another process: it finds out by itself
        load = producer.stream("load")
        for number in range(1, ROUNDS):
            load.append_many([(number, f"k{key}") for key in range(KEYS)])
            if number == ROUNDS // 3:
                assert cut.wait(60)
        producer.close()

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    reader = follower_of(app, "load", maxRowsPerTrigger=most)
    batches, place = [], reader.initialOffset()
    is_cut = is_last = False
    while True:
        end = reader.latestOffset(place, limit_of(reader))
        if end == place and is_last:
            break
        is_last = end == place and not thread.is_alive()
        batches.append(list(rows_between(reader, place, end)) if end != place else [])
        place = end
        if not is_cut and sum(map(len, batches)) > 5 * KEYS:
            app.stream("load").reshard(12)
            is_cut = True
            cut.set()
    thread.join()
    assert told(batches) == {f"k{key}": list(range(ROUNDS)) for key in range(KEYS)}
    shards = {one["shard"] for batch in batches for one in batch}
    assert shards & set(range(8))
    assert shards & set(range(8, 20))


def test_a_new_cut_waits_until_the_old_one_is_read(app: Dueline) -> None:
    load = app.stream("load", shards=1)
    load.append_many([(number, "k") for number in range(3)])
    reader = follower_of(app, "load", maxRowsPerTrigger="2")
    load.reshard(2)
    load.append_many([(number, "k") for number in range(3, 6)])
    found = [[one["shard"] for one in batch] for batch in walk(reader)]
    assert found[:2] == [[0, 0], [0]]
    assert 0 not in {shard for batch in found[2:] for shard in batch}
    assert sum(map(len, found)) == 6


def test_a_cut_that_nobody_sealed_is_sealed_by_the_reader(
    app: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = app.stream("load", shards=1)
    load.append(0, key="k")
    reader = follower_of(app, "load")
    (batch,) = walk(reader)
    place = reader.latestOffset(reader.initialOffset(), limit_of(reader))
    with monkeypatch.context() as patch:  # whoever cuts it dies before it seals
        patch.setattr(app.store, "close_until", lambda *_, **__: 0)
        load.reshard(2)
    load.append(1, key="k")
    assert told([batch, *walk(reader, place)]) == {"k": [0, 1]}


def test_what_is_available_now_stops_at_a_cut_that_came_later(app: Dueline) -> None:
    load = app.stream("load", shards=1)
    load.append(0, key="k")
    reader = follower_of(app, "load")
    reader.prepareForTriggerAvailableNow()
    load.append(1, key="k")
    load.reshard(2)
    load.append(2, key="k")
    assert told(list(walk(reader))) == {"k": [0]}
    assert told(list(walk(follower_of(app, "load")))) == {"k": [0, 1, 2]}
