"""Archives: whole or not at all, and what is damaged is named."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dueline import Dueline
from dueline.core.clock import SystemClock
from dueline.core.errors import BadInput, Conflict, NotFound, StoreCorrupt
from tests.harness.spark.tables import app_with_a_past, archive_rows, made, quiet, rows_in


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Dueline:
    """Make a store with a past, which is only read."""
    return app_with_a_past(tmp_path_factory.mktemp("past"))


def bad(folder: Path) -> dict[str, str]:
    """Tell what is wrong with an archive, by what it is wrong with."""
    from dueline.spark.pipeline.archive import Archive

    return {one.name: one.finding for one in Archive(folder).verify(quiet) if not one.is_good}


def test_an_archive_holds_the_rows_of_its_period(past: Dueline, tmp_path: Path) -> None:
    pipe = made(tmp_path / "lake", past, queues=("mail",))
    whole = pipe.archive(tmp_path / "whole", quiet)
    bronze = rows_in(tmp_path / "lake", "bronze")
    assert archive_rows(tmp_path / "whole") == bronze
    assert whole.rows == bronze.total() == 706
    places = sorted(dict(one)["at"] for one in bronze)
    since_us, until_us = places[100], places[600]
    told = pipe.archive(tmp_path / "part", quiet, since_us=since_us, until_us=until_us)
    inside = [one for one in bronze.elements() if since_us <= dict(one)["at"] < until_us]
    assert archive_rows(tmp_path / "part") == Counter(inside)
    assert 0 < told.rows == len(inside) < whole.rows
    assert not bad(tmp_path / "part")


def test_the_manifest_tells_between_which_positions_rows_lie(past: Dueline, tmp_path: Path) -> None:
    made(tmp_path / "lake", past).archive(tmp_path / "there", quiet)
    manifest = json.loads((tmp_path / "there" / "manifest.json").read_bytes())
    lines = [dict(one) for one in archive_rows(tmp_path / "there").elements()]
    ranges = [one for file in manifest["files"] for one in file["ranges"]]
    assert sum(one["rows"] for one in ranges) == manifest["rows"] == len(lines)
    for one in ranges:
        places = sorted(
            [line["at"], line["id"]]
            for line in lines
            if (line["queue"], line["shard"]) == (one["queue"], one["shard"])
        )
        assert [one["first"], one["last"]] == [places[0], places[-1]]
    assert {one["shard"] for one in ranges} == {0, 1, 2}


def test_a_task_that_is_repeated_writes_the_same_files_and_leaves_none(
    past: Dueline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dueline.spark.pipeline import archive
    from dueline.spark.pipeline.table_store import Folder

    made(tmp_path / "lake", past, queues=("mail",)).archive(tmp_path / "other", quiet)
    files = Folder(tmp_path / "lake").files("bronze")
    whole = archive.Period([], 0, 1 << 62)
    monkeypatch.setattr(archive, "ROWS_MAX", 300)
    monkeypatch.setattr(archive, "_PAGE", 100)
    there = archive.Archive(tmp_path / "there")
    place = there.clear()
    archive.put(files, whole, place, 3)
    first = {one.name: one.read_bytes() for one in place.iterdir()}
    assert sorted(first) == [f"part-000003-{count:03}.parquet" for count in range(3)]
    archive.put(files, whole, place, 3)
    assert {one.name: one.read_bytes() for one in place.iterdir()} == first
    (place / "0123.unfinished").write_bytes(b"half a fi")  # its task was killed
    assert there.publish({}, whole).files == 3
    assert {one.name for one in place.iterdir()} == set(first)
    assert archive_rows(tmp_path / "there") == rows_in(tmp_path / "lake", "bronze")


def test_an_archive_that_is_whole_stays_as_it_is(past: Dueline, tmp_path: Path) -> None:
    pipe = made(tmp_path / "lake", past)
    first = pipe.archive(tmp_path / "there", quiet)
    stamps = {one: one.stat().st_mtime_ns for one in (tmp_path / "there").rglob("*")}
    again = pipe.archive(tmp_path / "there", quiet)
    assert (first.is_new, again) == (True, first._replace(is_new=False))
    assert {one: one.stat().st_mtime_ns for one in (tmp_path / "there").rglob("*")} == stamps
    with pytest.raises(Conflict, match="holds another archive"):
        pipe.archive(tmp_path / "there", quiet, since_us=1)


def test_an_archive_that_was_cut_off_is_found_and_made_anew(
    past: Dueline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dueline.spark.pipeline.archive import Archive

    class Killed(BaseException):
        """The process ends here."""

    def die(*_: Any) -> None:
        raise Killed

    there = tmp_path / "there"
    pipe = made(tmp_path / "lake", past)
    with monkeypatch.context() as patch:
        patch.setattr(Archive, "publish", die)
        with pytest.raises(Killed):
            pipe.archive(there, quiet)
    assert list((there / "rows").iterdir())
    assert "incomplete" in bad(there)["archive is whole"]
    (there / "rows" / "part-000099.parquet").write_bytes(b"half a fi")
    (there / "manifest.new").write_bytes(b'{"archive": 1, "fil')
    assert pipe.archive(there, quiet).rows == archive_rows(there).total() == 706
    assert not bad(there)


def cut_short(file: Path) -> None:
    """Leave out the end."""
    file.write_bytes(file.read_bytes()[:-1])


def turn_a_bit(file: Path) -> None:
    """Change one bit in the middle."""
    body = bytearray(file.read_bytes())
    body[len(body) // 2] ^= 1
    file.write_bytes(body)


@pytest.mark.parametrize(
    ("damage", "words"),
    [(Path.unlink, "missing"), (cut_short, "bytes"), (turn_a_bit, "its digest differs")],
)
def test_a_file_that_is_damaged_is_named(
    past: Dueline, tmp_path: Path, damage: Callable[[Path], None], words: str
) -> None:
    made(tmp_path / "lake", past).archive(tmp_path / "there", quiet)
    assert not bad(tmp_path / "there")
    [file] = (tmp_path / "there" / "rows").iterdir()
    damage(file)
    found = bad(tmp_path / "there")
    assert list(found) == [f"rows/{file.name}"]
    assert words in found[f"rows/{file.name}"]


def test_a_stranger_among_the_files_is_named(past: Dueline, tmp_path: Path) -> None:
    made(tmp_path / "lake", past).archive(tmp_path / "there", quiet)
    (tmp_path / "there" / "rows" / "more.parquet").write_bytes(b"")
    assert "more.parquet" in bad(tmp_path / "there")["no other files"]


def test_what_would_not_be_a_whole_archive_is_refused(past: Dueline, tmp_path: Path) -> None:
    from dueline.spark.pipeline.archive import Archive

    pipe = made(tmp_path / "lake", past)
    with pytest.raises(BadInput, match="it may still get rows"):
        pipe.archive(tmp_path / "early", quiet, until_us=SystemClock().wall_us() + 3_600_000_000)
    assert not (tmp_path / "early").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(Conflict, match=r"contains letter\.txt"):
        pipe.archive(tmp_path / "mine", quiet)
    (tmp_path / "mine" / "manifest.json").write_text('{"version": 1}')
    with pytest.raises(StoreCorrupt, match="is not the manifest of an archive"):
        pipe.archive(tmp_path / "mine", quiet)
    with pytest.raises(NotFound):
        Archive(tmp_path / "nowhere").verify(quiet)


def test_the_commands_archive_and_verify(
    past: Dueline,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from dueline.cli import run

    monkeypatch.chdir(tmp_path)
    words = ["--store", past.url, "-o", "json", "pipeline"]
    told = []
    for _ in range(2):
        assert run([*words, "archive", "--to", "there", "--engine", "arrow"]) == 0
        told.append(json.loads(capsys.readouterr().out)["data"])
    assert [one["is_new"] for one in told] == [True, False]
    assert told[0]["rows"] == 706
    monkeypatch.delenv("DUELINE_STORE", raising=False)
    assert run(["pipeline", "verify", "--archive", "there"]) == 0
    assert run(["pipeline", "compact"]) == 0
    next((tmp_path / "there" / "rows").iterdir()).unlink()
    capsys.readouterr()
    assert run([*words, "verify", "--archive", "there"]) == 6
    assert "is missing" in capsys.readouterr().err


def test_rows_of_other_queues_are_left_out(past: Dueline, tmp_path: Path) -> None:
    from dueline.spark.pipeline.archive import Period
    from dueline.spark.pipeline.arrow_engine import ArrowEngine
    from dueline.spark.pipeline.engine import Settings
    from dueline.spark.pipeline.table_store import Folder

    engine = ArrowEngine(Folder(tmp_path / "lake"), Settings(past.url))
    engine.bronze(quiet)
    for name, files in (("bills", 0), ("mail", 1)):
        (tmp_path / name).mkdir()
        engine.archive(tmp_path / name, Period([name], 0, SystemClock().wall_us()))
        assert len(list((tmp_path / name).iterdir())) == files
