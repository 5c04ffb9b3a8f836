"""Tables in Delta: commits once, conflicts, and refusals (P5)."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from dueline.core.errors import ConfigError, Conflict, NotFound, StoreCorrupt
from dueline.spark.pipeline.delta import Table, place_of
from dueline.spark.pipeline.tables import BRONZE, SILVER, open_table
from tests.harness.spark.tables import BORN, SECOND, attempt, rows_in


def bronze(root: Path) -> Table:
    """Open bronze."""
    return open_table(place_of(str(root)), "bronze")


def put(table: Table, *jobs: str, **changes: Any) -> list[Any]:
    """Write rows to files."""
    rows = [{**attempt(job, 1, **changes), "batch": 1} for job in jobs]
    return table.writer.write(pa.Table.from_pylist(rows, BRONZE.inside))


def test_a_commit_is_made_once(tmp_path: Path) -> None:
    first, second = bronze(tmp_path), bronze(tmp_path)
    first.create()
    files = put(first, "a", "b")
    assert (first.rows(), second.position("batch")) == (0, None)
    first.commit(files, positions={"batch": 1, "mail/00000": 7})
    with pytest.raises(Conflict, match="at the same time"):  # the same, from an older snapshot
        second.commit(files, positions={"batch": 1, "mail/00000": 7})
    second.refresh()
    assert (second.rows(), second.position("batch"), second.position("mail/00000")) == (2, 1, 7)


def test_files_are_replaced_at_once_or_not(tmp_path: Path) -> None:
    table, other = bronze(tmp_path), bronze(tmp_path)
    table.create()
    table.commit(put(table, "a"))
    (old,) = table.files()
    assert [one.path for one in other.files()] == [old.path]
    table.commit(put(table, "b"), [old])
    with pytest.raises(Conflict):
        other.commit(put(other, "c"), [old])
    assert {dict(row)["job_id"] for row in rows_in(tmp_path, "bronze")} == {"b"}
    assert len(table.vacuum(0)) == 2  # what was replaced, and what was never committed
    assert sum(rows_in(tmp_path, "bronze").values()) == 1


def test_files_tell_days_and_ranges(tmp_path: Path) -> None:
    table = bronze(tmp_path)
    table.create()
    day = 86_400 * SECOND
    files = put(table, "a", "b", at=BORN + 3) + put(table, "c", enqueued=BORN + day)
    table.commit(files, positions={"batch": 1})
    found = sorted(table.files(), key=lambda one: str(one.day))
    assert found == sorted(files, key=lambda one: str(one.day))
    assert [one.rows for one in found] == [2, 1]
    assert [one.day for one in found] == ["2026-11-18", "2026-11-19"]
    assert found[0].may_hold("enqueued", BORN, BORN)
    assert not found[0].may_hold("enqueued", BORN + day, BORN + day)
    assert not found[0].may_hold("queue", "bills", "bills")
    assert table.newer(0) == table.files()
    assert table.newer(1) == []


def test_other_tables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no table bronze in"):
        bronze(tmp_path).delta()
    write_deltalake(tmp_path / "bronze", pa.table({"a": [1]}))
    with pytest.raises(StoreCorrupt, match="another program wrote it"):
        bronze(tmp_path).exists()
    open_table(place_of(str(tmp_path)), "silver").create()
    with pytest.raises(StoreCorrupt, match="another program wrote it"):  # one of ours, elsewhere
        Table(place_of(str(tmp_path / "silver")), BRONZE).exists()


def test_newer_and_changed_tables_are_refused(tmp_path: Path) -> None:
    bronze(tmp_path).create()
    opened = DeltaTable(tmp_path / "bronze")
    opened.alter.set_table_properties({"dueline.version": "99"}, raise_if_not_exists=False)
    with pytest.raises(StoreCorrupt, match="made by a newer version"):
        bronze(tmp_path).exists()

    ours = {"dueline.version": "1", "dueline.table": "silver"}
    for name, words in (("queue", "no column queue"), ("shard", "column shard of .* is string")):
        there = tmp_path / name
        shape = [
            pa.field("shard", pa.string()) if field.name == name == "shard" else field
            for field in SILVER.shape
            if field.name != name or name == "shard"
        ]
        write_deltalake(there / "silver", pa.schema(shape).empty_table())
        DeltaTable(there / "silver").alter.set_table_properties(ours, raise_if_not_exists=False)
        with pytest.raises(StoreCorrupt, match=words):
            open_table(place_of(str(there)), "silver").exists()


def test_a_place_that_cannot_be_used_is_one_sentence_without_secrets(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises((ConfigError, NotFound)) as failed:
        bronze(tmp_path / "file").create()
    options = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "x",
        "AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "very-secret", "max_retries": "0",
        "retry_timeout": "1s",
    }  # fmt: skip
    place = place_of("s3://none/lake", options)
    with pytest.raises(ConfigError, match=r"s3://none/lake/bronze cannot be used") as failed:
        open_table(place, "bronze").exists()
    assert "very-secret" not in str(failed.value) + repr(place)


def test_a_full_disk_is_one_sentence_and_nothing_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dueline.spark.pipeline import delta

    def full(_: Path) -> None:
        raise OSError(28, "No space left on device")

    table = bronze(tmp_path)
    table.create()
    with monkeypatch.context() as patch:
        patch.setattr(delta, "_flush", full)
        with pytest.raises(ConfigError, match=r"cannot be used: .*No space left on device"):
            put(table, "a")
    assert table.rows() == 0
    table.commit(put(table, "a"))
    assert table.rows() == 1
