"""Checks of a file run next to other calls."""

import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from dueline.core.clock import SystemClock
from dueline.core.store import Put
from dueline.stores.sqlite import damage
from dueline.stores.sqlite.store import SqliteStore


def test_calls_go_on_while_indexes_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "q.db", clock=SystemClock())
    began, go_on = threading.Event(), threading.Event()
    compare = damage.compare_indexes

    def slowly(database: apsw.Connection, is_over: Callable[[], bool]) -> list[str] | None:
        began.set()
        assert go_on.wait(30)
        return compare(database, is_over)

    monkeypatch.setattr(damage, "compare_indexes", slowly)
    differences: list[object] = []
    thread = threading.Thread(
        target=lambda: differences.append(store.compare_indexes(timeout_us=10_000_000))
    )
    thread.start()
    assert began.wait(30)
    assert store.commit("p", (Put("k", b"v" * 16, b"{}"),))
    assert [record.key for record in store.read("p", after=None, limit=9)] == ["k"]
    go_on.set()
    thread.join(30)
    assert differences == [[]]
    store.close()
