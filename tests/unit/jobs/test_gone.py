"""What a stream has let go of is known."""

import pytest

from dueline.core.ids import Ids
from dueline.core.store import Row, Store
from dueline.log import trimming


def fill(store: Store, *at_us: int, shard: int = 0) -> list[Row]:
    """Append a row at each instant."""
    rows = [Row("log", shard, us, b"%016d" % number, b"{}") for number, us in enumerate(at_us)]
    store.append(rows)
    return rows


def let_go(store: Store, before_us: int, shard: int = 0) -> None:
    """Let go of what lies below an instant."""
    trimming.trim(store, "log", shard, before_us=before_us, version=Ids().token())


def test_the_last_row_that_went_is_named_and_it_only_grows(store: Store) -> None:
    day = 86_400_000_000
    rows = fill(store, day, 2 * day, 2 * day, 5 * day)
    let_go(store, day)
    assert trimming.places(store, "log") == {}  # nothing lay there
    let_go(store, 4 * day)
    assert trimming.places(store, "log") == {0: rows[2][2:4]}
    left = store.tail("log", 0, after=None, limit=9).rows
    assert [row.at_us for row in left] == [5 * day]
    let_go(store, 3 * day)
    assert trimming.places(store, "log") == {0: rows[2][2:4]}
    let_go(store, 6 * day)
    assert trimming.places(store, "log") == {0: rows[3][2:4]}


@pytest.mark.slow
@pytest.mark.parametrize("together", [1, 1500])
def test_the_last_of_many_is_found(store: Store, together: int) -> None:
    rows = fill(store, *(10**12 + number // together * 977 for number in range(2500)), shard=3)
    let_go(store, 10**12 + 2400 * 977, shard=3)
    expected = max(row[2:4] for row in rows if row.at_us < 10**12 + 2400 * 977)
    assert trimming.places(store, "log") == {3: expected}


def test_it_is_said_before_a_row_goes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = fill(store, 5)
    seen = []
    monkeypatch.setattr(
        store, "expire", lambda *_, **__: seen.append(trimming.places(store, "log"))
    )
    let_go(store, 9)
    assert seen == [{0: row[2:4]}]


def test_nothing_goes_that_could_not_be_told_of(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 5)
    monkeypatch.setattr(store, "commit", lambda *_: False)
    let_go(store, 9)
    assert len(store.tail("log", 0, after=None, limit=9).rows) == 1
