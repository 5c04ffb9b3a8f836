"""Many small files made few, without a row changed."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dueline import Dueline
from dueline.core.errors import Conflict, StoreCorrupt
from tests.harness.spark.tables import live_on, made, quiet, rows_in

TABLES = ("bronze", "silver", "gold_minute", "gold_lateness", "flow")
STEPS = 5


class Lake:
    """Tables that were brought up to date several times, so that bronze has as many parts."""

    def __init__(self, root: Path, app: Dueline) -> None:
        """Take their folder, and the store."""
        from dueline.spark.pipeline.table_store import Folder

        self.root = root
        self.app = app
        self.folder = Folder(root)
        self.pipe = made(root, app)

    def compact(self, most: int = 10_000) -> Any:
        """Make few files of many."""
        from dueline.spark.pipeline.compaction import compact

        return compact(self.folder, most, quiet)

    def files(self) -> int:
        """Count the files of bronze that lie there, whether they count or not."""
        return len(list((self.root / "bronze").rglob("*.parquet")))

    def tables(self) -> dict[str, Counter[Any]]:
        """Read all rows."""
        return {table: rows_in(self.root, table) for table in TABLES}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Let jobs run, and copy, again and again; the last time into bronze only."""
    folder = tmp_path_factory.mktemp("filled")
    app = Dueline(f"sqlite:///{folder / 'jobs.db'}?synchronous=NORMAL")
    app.queue("mail", shards=2, history="all")
    lake = Lake(folder / "lake", app)
    for step in range(STEPS):
        live_on(app, 10 + step)
        lake.pipe.run(["bronze"] if step == STEPS - 1 else [], quiet)
    return lake


@pytest.fixture
def lake(filled: Lake, tmp_path: Path) -> Lake:
    """Make tables of many parts."""
    shutil.copytree(filled.root, tmp_path / "lake")
    return Lake(tmp_path / "lake", filled.app)


def test_no_row_is_changed_and_later_runs_go_on(lake: Lake, tmp_path: Path) -> None:
    before = lake.tables()
    told = lake.compact()
    assert (told.files_before, told.files) == (STEPS, 2)
    assert lake.tables() == before
    lake.pipe.run([], quiet)
    live_on(lake.app, 30)
    lake.pipe.run([], quiet)
    assert all(one.is_good for one in lake.pipe.verify())
    made(tmp_path / "whole", lake.app).run([], quiet)
    for table in TABLES:
        assert rows_in(lake.root, table) == rows_in(tmp_path / "whole", table), table
    assert lake.compact().files == 2


def test_what_silver_has_not_seen_and_what_is_newest_stays_by_itself(lake: Lake) -> None:
    from dataclasses import replace

    lake.folder.publish("silver", replace(lake.folder.manifest("silver"), done=1))
    lake.compact()
    assert list(lake.folder.manifest("bronze").parts) == ["000001", "000002", "000003", "000004"]
    lake.pipe.run(["silver"], quiet)
    lake.compact()
    assert list(lake.folder.manifest("bronze").parts) == ["000003", "000004"]
    assert all(one.is_good for one in lake.pipe.verify()[:2])


def test_no_part_grows_above_what_was_asked(lake: Lake) -> None:
    facts = lake.folder.manifest("bronze").facts
    most = facts["000000"]["rows"] + facts["000001"]["rows"]
    lake.compact(most)
    after = lake.folder.manifest("bronze").facts
    assert list(after) == ["000001", "000002", "000003", "000004"]
    assert after["000001"]["rows"] == most
    assert after["000001"]["last_us"] == facts["000001"]["last_us"]
    assert after["000001"]["first_us"] == facts["000000"]["first_us"]


@pytest.mark.parametrize("step", ["flush", "Folder.publish", "Folder._drop"])
def test_one_that_is_killed_leaves_the_tables_as_they_were(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    class Killed(BaseException):
        """The process ends here."""

    def die(*_: Any) -> None:
        raise Killed

    before = lake.tables()
    home = (
        "dueline.spark.pipeline.compaction"
        if step == "flush"
        else "dueline.spark.pipeline.table_store"
    )
    with monkeypatch.context() as patch:
        patch.setattr(f"{home}.{step}", die)
        with pytest.raises(Killed):
            lake.compact()
    assert lake.files() == STEPS + 1
    assert lake.tables() == before
    lake.compact()
    lake.compact()
    assert lake.files() == 2
    assert lake.tables() == before


def test_a_reader_finds_the_files_that_it_was_told_of(lake: Lake) -> None:
    told = lake.folder.files("bronze")
    lake.compact()
    assert all(file.is_file() for file in told)
    lake.compact()
    assert [file.is_file() for file in told] == [False] * (STEPS - 1) + [True]


def test_a_part_that_lacks_rows_is_told_and_kept(lake: Lake) -> None:
    from pyarrow import parquet

    file = lake.folder.files("bronze")[0]
    parquet.write_table(parquet.read_table(file).slice(1), file)
    manifest = lake.folder.manifest("bronze")
    with pytest.raises(StoreCorrupt, match="but the manifest says"):
        lake.compact()
    assert lake.folder.manifest("bronze") == manifest
    assert all(one.is_file() for one in lake.folder.files("bronze"))


def test_one_process_writes_at_a_time(lake: Lake, tmp_path: Path) -> None:
    with lake.folder.writing():
        acts: list[Callable[[], Any]] = [
            lake.compact,
            lambda: lake.pipe.run([], quiet),
            lambda: lake.pipe.audit(quiet),
            lambda: lake.pipe.archive(tmp_path / "there", quiet),
        ]
        for act in acts:
            with pytest.raises(Conflict, match="Another process writes"):
                act()
        assert lake.pipe.verify()
    assert lake.compact().files == 2


def test_the_command_compacts(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dueline.cli import run

    words = ["--store", lake.app.url, "-o", "json", "pipeline", "compact", "--out"]
    assert run([*words, str(lake.root)]) == 0
    told = json.loads(capsys.readouterr().out)["data"]
    assert (told["files_before"], told["files"]) == (STEPS, 2)
    assert run([*words, str(tmp_path / "none")]) == 4
