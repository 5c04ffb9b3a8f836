"""Archives: whole or not at all, and what is damaged is named (P10)."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dueline import Dueline
from dueline.core.clock import SystemClock
from dueline.core.errors import BadInput, Conflict, NotFound, StoreCorrupt
from tests.harness.spark.tables import BORN, app_with_a_past, archive_rows, made, quiet, rows_in


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Dueline:
    """Make a store with a past, which is only read."""
    return app_with_a_past(tmp_path_factory.mktemp("past"))


def bad(folder: Path) -> dict[str, str]:
    """Tell what is wrong with an archive, by what it is wrong with."""
    from dueline.spark.pipeline.archive import verify

    return {one.name: one.finding for one in verify(at(folder), quiet) if not one.is_good}


def at(folder: Path) -> Any:
    """Return the place of an archive."""
    from dueline.spark.pipeline.delta import place_of

    return place_of(str(folder))


def test_an_archive_holds_the_rows_of_its_period(past: Dueline, tmp_path: Path) -> None:
    pipe = made(tmp_path / "lake", past, queues=("mail",))
    whole = pipe.archive(at(tmp_path / "whole"), quiet)
    bronze = rows_in(tmp_path / "lake", "bronze")
    assert archive_rows(tmp_path / "whole") == bronze
    assert whole.rows == bronze.total() == 706
    places = sorted(dict(one)["at"] for one in bronze)
    since_us, until_us = places[100], places[600]
    told = pipe.archive(at(tmp_path / "part"), quiet, since_us=since_us, until_us=until_us)
    inside = [one for one in bronze.elements() if since_us <= dict(one)["at"] < until_us]
    assert archive_rows(tmp_path / "part") == Counter(inside)
    assert 0 < told.rows == len(inside) < whole.rows
    assert not bad(tmp_path / "part")


def test_an_archive_that_is_whole_stays_as_it_is(past: Dueline, tmp_path: Path) -> None:
    pipe = made(tmp_path / "lake", past)
    first = pipe.archive(at(tmp_path / "there"), quiet)
    stamps = {one: one.stat().st_mtime_ns for one in (tmp_path / "there").rglob("*")}
    again = pipe.archive(at(tmp_path / "there"), quiet)
    assert (first.is_new, again) == (True, first._replace(is_new=False))
    assert {one: one.stat().st_mtime_ns for one in (tmp_path / "there").rglob("*")} == stamps
    with pytest.raises(Conflict, match="holds another archive: all queues, until its end"):
        pipe.archive(at(tmp_path / "there"), quiet, since_us=1)
    pipe.archive(at(tmp_path / "later"), quiet, since_us=BORN)
    with pytest.raises(Conflict, match=r"all queues, since 2026-11-18T.*, until its end"):
        pipe.archive(at(tmp_path / "later"), quiet)


def test_an_archive_that_was_cut_off_is_found_and_made_anew(
    past: Dueline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dueline.spark.pipeline import archive
    from dueline.spark.pipeline.delta import Table

    class Killed(BaseException):
        """The process ends here."""

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    there = tmp_path / "there"
    pipe = made(tmp_path / "lake", past)
    pipe.run(["bronze"], quiet)
    with monkeypatch.context() as patch:
        patch.setattr(Table, "commit", die)
        with pytest.raises(Killed):
            pipe.archive(at(there), quiet)
    files = list(there.rglob("*.parquet"))
    assert files
    assert "incomplete" in bad(there)["archive is whole"]
    with pytest.raises(NotFound, match="no complete archive"):
        archive.view_of([at(there)])
    assert pipe.archive(at(there), quiet).rows == archive_rows(there).total() == 706
    assert not bad(there)
    table = Table(at(there), archive.ARCHIVE)
    assert len(table.vacuum(0)) == len(files)
    assert archive_rows(there).total() == 706


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
    made(tmp_path / "lake", past).archive(at(tmp_path / "there"), quiet)
    assert not bad(tmp_path / "there")
    file = next((tmp_path / "there").rglob("*.parquet"))
    damage(file)
    found = bad(tmp_path / "there")
    name = str(file.relative_to(tmp_path / "there"))
    assert list(found) == [name, "archive is whole"]
    assert words in found[name]


def test_what_would_not_be_a_whole_archive_is_refused(past: Dueline, tmp_path: Path) -> None:
    from dueline.spark.pipeline import archive

    pipe = made(tmp_path / "lake", past)
    with pytest.raises(BadInput, match="it may still get rows"):
        pipe.archive(at(tmp_path / "early"), quiet,
                     until_us=SystemClock().wall_us() + 3_600_000_000)  # fmt: skip
    assert not (tmp_path / "early").exists()
    with pytest.raises(StoreCorrupt, match="another program wrote it"):
        pipe.archive(at(tmp_path / "lake" / "bronze"), quiet)
    with pytest.raises(NotFound, match="Make it with `dueline pipeline archive`"):
        archive.verify(at(tmp_path / "nowhere"), quiet)


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
        assert run([*words, "archive", "--to", "there", "--engine", "duckdb"]) == 0
        told.append(json.loads(capsys.readouterr().out)["data"])
    assert [one["is_new"] for one in told] == [True, False]
    assert told[0]["rows"] == 706
    monkeypatch.delenv("DUELINE_STORE", raising=False)
    assert run(["pipeline", "verify", "--archive", "there"]) == 0
    next((tmp_path / "there").rglob("*.parquet")).unlink()
    capsys.readouterr()
    assert run([*words, "verify", "--archive", "there"]) == 6
    assert "is missing" in capsys.readouterr().err


def test_rows_of_other_queues_are_left_out(past: Dueline, tmp_path: Path) -> None:
    made(tmp_path / "lake", past).run(["bronze"], quiet)
    past.queues.engine.catalog.configure("bills", history="all")
    for name, rows in (("bills", 0), ("mail", 706)):
        pipe = made(tmp_path / "lake", past, queues=(name,))
        assert pipe.archive(at(tmp_path / name), quiet).rows == rows
