"""Queue files of earlier schemas."""

from importlib import resources
from pathlib import Path

import apsw
import pytest

from dueline.core.clock import SystemClock
from dueline.store_tests.calls import row_of, stream_of
from dueline.stores.sqlite.connection import APPLICATION_ID, SCHEMA_VERSION
from dueline.stores.sqlite.damage import SCHEMAS
from dueline.stores.sqlite.store import SqliteStore


@pytest.mark.sqlite
@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
def test_a_file_of_an_earlier_schema_is_upgraded_and_keeps_its_rows(
    version: int, tmp_path: Path
) -> None:
    path = tmp_path / "queue.db"
    database = apsw.Connection(str(path))
    for name in SCHEMAS[:version]:
        script = resources.files("dueline.stores.sqlite").joinpath(name).read_text("utf-8")
        for _ in database.execute(script):
            pass
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    database.execute(f"PRAGMA user_version = {version}")
    database.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?)", row_of(1))
    database.close()
    path.chmod(0o600)

    store = SqliteStore(path, clock=SystemClock())
    assert stream_of(store) == [row_of(1)]
    assert store.close_until("log", 0, at_us=5) == 5
    assert store.describe()["schema"] == str(SCHEMA_VERSION)
    store.close()
