"""Tables that cannot be used: what the commands say."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")

import pyarrow as pa
from deltalake import write_deltalake

from dueline.cli import run
from tests.harness.spark.tables import app_with_a_past, made, quiet

Said = pytest.CaptureFixture[str]


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """Make a store with a past and its tables; return the options of commands."""
    app = app_with_a_past(tmp_path)
    made(tmp_path / "lake", app).run([], quiet)
    return ["--store", app.url, "--out", str(tmp_path / "lake")]


def refused(capsys: Said, words: list[str], *command: str) -> str:
    """Run a command that fails; return what it prints."""
    capsys.readouterr()
    assert run(["pipeline", *command, *words]) == 3
    return capsys.readouterr().err


@pytest.mark.parametrize("state", ["missing", "damaged"])
@pytest.mark.parametrize(
    "command", [["verify"], ["report"], ["audit", "--engine", "duckdb", "--full"]]
)
def test_a_file_that_is_not_whole_is_named(
    tmp_path: Path, capsys: Said, words: list[str], command: list[str], state: str
) -> None:
    for file in tmp_path.glob("lake/*/day=*/*.parquet"):
        if state == "missing":
            file.unlink()
        else:
            file.write_bytes(file.read_bytes()[:-20])
    said = refused(capsys, words, *command)
    assert "dueline: the tables cannot be read" in said
    assert f".parquet of a table is {state}." in said
    assert "delete the folder of the table" in said
    assert "Traceback" not in said


def test_a_table_of_another_program_is_an_error_of_the_tables(
    tmp_path: Path, capsys: Said, words: list[str]
) -> None:
    write_deltalake(tmp_path / "other" / "bronze", pa.table({"a": [1]}))
    words[-1] = str(tmp_path / "other")
    for command in (["run", "--engine", "duckdb"], ["verify"]):
        said = refused(capsys, words, *command)
        assert "dueline: the tables cannot be read" in said
        assert "another program wrote it" in said


def test_a_place_that_cannot_be_used_is_an_error_of_the_tables(
    tmp_path: Path, capsys: Said, words: list[str]
) -> None:
    (tmp_path / "file").write_text("")
    words[-1] = str(tmp_path / "file")
    said = refused(capsys, words, "run", "--engine", "duckdb")
    assert "dueline: the tables cannot be read or written" in said
    assert "file/bronze cannot be used: Not a directory" in said


def test_options_of_a_file_that_is_not_there(
    tmp_path: Path, capsys: Said, words: list[str]
) -> None:
    given = [*words, "--storage-options", str(tmp_path / "none.json")]
    assert run(["pipeline", "run", "--engine", "duckdb", *given]) == 2
    assert "none.json of --storage-options cannot be read: No such file" in capsys.readouterr().err


UNREACHED = """Generic S3 error
   \x1b[31m↳\x1b[0m Error performing GET http://a/lake in 2ms, after 10 retries
    \x1b[31m↳\x1b[0m tcp connect error
     \x1b[31m↳\x1b[0m port 9001
"""
ANSWERED = """Generic S3 error
 ↳ 404 Not Found
  ↳ <?xml version='1.0'?>
<Error><Code>NoSuchBucket</Code><Message>There is no bucket</Message><Id>7</Id></Error>
"""
FAILED = """Kernel error: Json error: Encountered 'X'
   0: <unknown>
   1: start_thread
             at ./nptl/pthread_create.c:442:8
"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (UNREACHED, "tcp connect error: port 9001"),
        (ANSWERED, "404 Not Found: There is no bucket"),
        (FAILED, "Kernel error: Json error: Encountered 'X'"),
    ],
)
def test_an_error_of_the_lake_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, sentence: str
) -> None:
    from dueline.core.errors import LakeUnavailable
    from dueline.spark.pipeline import delta
    from dueline.spark.pipeline.tables import open_table

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(text)

    monkeypatch.setattr(delta, "DeltaTable", fail)
    with pytest.raises(LakeUnavailable) as caught:
        open_table(delta.place_of(str(tmp_path)), "bronze").exists()
    assert caught.value.message == f"{tmp_path / 'bronze'} cannot be used: {sentence}"
