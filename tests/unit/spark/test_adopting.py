"""Tables and archives of older versions, taken over."""

import json
from collections import Counter
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from dueline import Dueline
from dueline.core.errors import Conflict, LakeCorrupt, NotFound, StoreCorrupt
from tests.harness.spark.tables import (
    Line,
    archive_rows,
    history_of,
    live_on,
    made,
    quiet,
    rows_in,
    write_old_rows,
)


def old_lake(root: Path, lines: list[Line], version: int, **more: Any) -> None:
    """Make tables of an older version: parts, and a manifest of bronze."""
    half = len(lines) // 2
    for part, some in (("000000", lines[:half]), ("000001-ab12", lines[half:])):
        write_old_rows(root / "bronze" / part / "part-0.parquet", some)
    (root / "bronze" / "000002").mkdir()  # died before its manifest
    manifest = {"version": version, "engine": "spark", "done": 1, "facts": {}, "offsets": {},
                "parts": {"000000": "000000", "000001": "000001-ab12"}, **more}  # fmt: skip
    (root / "bronze" / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("version", [2, 3])
def test_old_tables_go_on_row_by_row(app: Dueline, tmp_path: Path, version: int) -> None:
    lines = history_of(app, "mail", 3)
    old_lake(tmp_path / "old", lines, version, begins={"mail": 5} if version == 3 else {})
    pipe = made(tmp_path / "new", app)
    steps = {one.name: one.rows for one in pipe.adopt(tmp_path / "old", quiet)}
    assert steps["bronze"] == len(lines) == 706
    wanted = Counter(tuple(sorted(line.items())) for line in lines)
    assert rows_in(tmp_path / "new", "bronze") == wanted
    assert pipe.run(["bronze"], quiet)[0].rows == 0
    live_on(app, 30)
    pipe.run([], quiet)
    assert all(one.is_good for one in pipe.verify())
    made(tmp_path / "whole", app).run([], quiet)
    for table in ("bronze", "silver", "gold_minute", "flow", "poison"):
        assert rows_in(tmp_path / "new", table) == rows_in(tmp_path / "whole", table), table
    with pytest.raises(Conflict, match="has rows already"):
        pipe.adopt(tmp_path / "old", quiet)


def test_old_tables_that_end_inside_a_timestamp_lose_nothing(app: Dueline, tmp_path: Path) -> None:
    # bulk enqueue events share a timestamp, and old batches ended anywhere
    lines = sorted(history_of(app, "mail", 3), key=lambda line: (line["at"], line["id"]))
    events = [line for line in lines if line["outcome"] == "enqueued"][:100]
    assert events[-1]["at"] == events[-2]["at"]
    kept = [line for line in lines if (line["at"], line["id"]) <= (
        events[-1]["at"], events[-1]["id"])]  # fmt: skip
    old_lake(tmp_path / "old", kept, 3)
    pipe = made(tmp_path / "new", app)
    pipe.adopt(tmp_path / "old", quiet)
    pipe.run([], quiet)
    wanted = Counter(tuple(sorted(line.items())) for line in lines)
    assert rows_in(tmp_path / "new", "bronze") == wanted


@pytest.mark.parametrize("harm", ["folder", "file", "half", "text", "rows", "other"])
def test_an_old_lake_that_is_not_whole_is_refused_before_a_row_is_copied(
    app: Dueline, tmp_path: Path, harm: str
) -> None:
    old = tmp_path / "old" / "bronze"
    lines = history_of(app, "mail", 3)
    facts = {"000001": {"rows": len(lines) - len(lines) // 2 + (harm == "rows")}}
    old_lake(tmp_path / "old", lines, 3, facts=facts)
    file = old / "000000" / "part-0.parquet"
    whole = {one: one.read_bytes() for one in (file, old / "manifest.json")}
    spoil_files(harm, file, old / "manifest.json")
    pipe = made(tmp_path / "new", app)
    words = {"text": "manifest.json is damaged", "half": "part-0.parquet is damaged",
             "other": "not one of a history"}.get(harm, "does not hold .* rows")  # fmt: skip
    with pytest.raises(LakeCorrupt, match=words):
        pipe.adopt(tmp_path / "old", quiet)
    assert not (tmp_path / "new").exists()
    if harm != "rows":
        file.parent.mkdir(exist_ok=True)
        for one, text in whole.items():
            one.write_bytes(text)
        pipe.adopt(tmp_path / "old", quiet)
        assert rows_in(tmp_path / "new", "bronze").total() == len(lines)


def spoil_files(harm: str, file: Path, manifest: Path) -> None:
    """Do some harm to a file of rows or to its manifest."""
    import pyarrow as pa
    from pyarrow import parquet

    if harm == "folder":
        rmtree(file.parent)
    elif harm == "file":
        file.unlink()
    elif harm == "half":
        file.write_bytes(file.read_bytes()[:500])
    elif harm == "other":
        parquet.write_table(pa.table({"x": [1]}), file)
    elif harm == "text":
        manifest.write_bytes(manifest.read_bytes()[:20])


@pytest.mark.parametrize("harm", ["file", "half", "text", "other"])
def test_an_old_archive_that_is_not_whole_is_refused_before_a_row_is_copied(
    app: Dueline, tmp_path: Path, harm: str
) -> None:
    file, manifest = tmp_path / "old" / "rows" / "part-0.parquet", tmp_path / "old/manifest.json"
    lines = history_of(app, "mail", 3)
    write_old_rows(file, lines)
    asked = {"queues": ["mail"], "since_us": None, "until_us": None}
    manifest.write_text(json.dumps({
        "archive": 1, "asked": asked, "since_us": 0, "until_us": 1 << 60, "rows": len(lines),
        "files": [{"name": "part-0.parquet"}],
    }))  # fmt: skip
    spoil_files(harm, file, manifest)
    with pytest.raises(LakeCorrupt, match=r"is missing|is damaged|not one of a history"):
        made(tmp_path / "new", app).adopt(tmp_path / "old", quiet)
    assert not (tmp_path / "new").exists()


def test_what_is_no_old_lake_is_refused(app: Dueline, tmp_path: Path) -> None:
    pipe = made(tmp_path / "new", app)
    with pytest.raises(NotFound, match="no tables of an older version"):
        pipe.adopt(tmp_path / "none", quiet)
    old_lake(tmp_path / "old", history_of(app, "mail", 3), 1)
    with pytest.raises(StoreCorrupt, match=r"another version \(1\)"):
        pipe.adopt(tmp_path / "old", quiet)
    assert not (tmp_path / "new").exists()


def test_an_old_archive_is_taken_over_and_replayed(app: Dueline, tmp_path: Path) -> None:
    from dueline.spark.pipeline.delta import place_of
    from dueline.spark.pipeline.replay import Chosen

    lines, later = history_of(app, "mail", 3), ("codec", "payload_bytes", "payload", "digest")
    write_old_rows(tmp_path / "old" / "rows" / "part-0.parquet", lines, *later)
    asked = {"queues": ["mail"], "since_us": None, "until_us": None}
    manifest = {"archive": 1, "asked": asked, "since_us": 0, "until_us": 1 << 60,
                "rows": len(lines), "files": [{"name": "part-0.parquet"}]}  # fmt: skip
    (tmp_path / "old" / "manifest.json").write_text(json.dumps(manifest))
    pipe = made(tmp_path / "new", app)
    for _ in range(2):
        (step,) = pipe.adopt(tmp_path / "old", quiet)
        assert step.rows == len(lines)
    found = archive_rows(tmp_path / "new")
    gone = dict.fromkeys(later)
    assert found == Counter(tuple(sorted({**line, **gone}.items())) for line in lines)
    seen = pipe.replayable(Chosen(), [place_of(str(tmp_path / "new"))])
    assert seen.count("jobs") == seen.count("not_kept") > 0
