"""What it costs stores to expire a backlog of events: statements of many rows, none by row (H3).

On Cassandra a bucket is one deleted partition: `tests/stores/cassandra/test_traces.py`.
"""

import importlib
from pathlib import Path

import pytest

from dueline.core.store import Row
from dueline.stores.redis.operations import PART
from tests.harness.addresses import WITH_ADDRESS, world_of

ROWS = 2 * PART + 1


@pytest.mark.parametrize("kind", [kind for kind in WITH_ADDRESS if kind.values != ("cassandra",)])
def test_events_expire_by_ranges(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[None] = []
    place = {
        "sqlite": "dueline.stores.sqlite.streams:expire",
        "postgres": "dueline.stores.postgres.streams:expire",
        "redis": "dueline.stores.redis.connection:Connections.keep",
    }
    with world_of(kind, tmp_path) as world:
        world.store.append([Row("log", 0, number, bytes(16), b"{}") for number in range(ROWS)])
        world.store.close_until("log", 0, at_us=ROWS)
        module, _, name = place[kind].partition(":")
        holder = importlib.import_module(module)
        *outer, name = name.split(".")
        for part in outer:
            holder = getattr(holder, part)
        count = getattr(holder, name)

        def counted(*args: object) -> object:
            calls.append(None)
            return count(*args)

        monkeypatch.setattr(holder, name, counted)
        if kind != "redis":
            monkeypatch.setattr(holder, "EXPIRED_MAX", PART)
        world.store.expire("log", 0, before_us=ROWS - 1)
        assert len(calls) in (ROWS // PART + 1, ROWS // PART + 2)  # the last one may find nothing
        left = world.store.tail("log", 0, after=None, limit=2).rows
        assert [row.at_us for row in left] == [ROWS - 1]
