"""`dueline enqueue --file` (V7)."""

import io
from collections.abc import Sequence
from pathlib import Path

import pytest

from dueline.core.errors import StoreUnavailable
from dueline.core.job import Job
from dueline.stores.sqlite.store import SqliteStore
from tests.harness.shell import Shell


def write(shell: Shell, *lines: str) -> str:
    (shell.folder / "calls.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return "calls.jsonl"


def test_each_line_is_a_job(shell: Shell) -> None:
    path = write(shell, "[1]", "", '{"x": 2, "y": 3}', "[4, 5]")
    answer = shell.app("enqueue", "tasks.echo", "--file", path, "--tag", "t", "-o", "json")
    assert answer.code == 0, answer
    assert answer.data == {"task": "tasks.echo", "enqueued": 3}
    ids = shell.ids("--tag", "t")
    shell.work()
    results = [shell.app("jobs", "show", job_id, "-o", "json").data["result"] for job_id in ids]
    assert results == [[1, {}], [{"x": 2, "y": 3}], [4, 5, {}]]


def test_lines_come_from_the_standard_input(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("[1]\n[2]\n"))
    assert shell.app("enqueue", "tasks.add", "--file", "-", "-o", "json").data["enqueued"] == 2


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ("[1", "not JSON"),
        ("7", "neither an array nor an object"),
        ("[1, 2, 3]", "do not fit"),
        ('{"c": 1}', "do not fit"),
        ('["x"]', "a"),
        ("[NaN]", "JSON"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_enqueued(shell: Shell, bad: str, word: str) -> None:
    answer = shell.app("enqueue", "tasks.add", "--file", write(shell, "[1]", "", bad, "[2]"))
    assert answer.code == 2
    assert "nothing was done" in answer.err
    assert answer.why.startswith("Line 3: ")
    assert word in answer.why
    assert shell.ids() == []


@pytest.mark.parametrize("more", [["1"], ["--wait"], ["--unique", "k"]])
def test_a_file_goes_with_no_arguments(shell: Shell, more: Sequence[str]) -> None:
    assert shell.app("enqueue", "tasks.add", *more, "--file", write(shell, "[1]")).code == 2
    assert shell.ids() == []


def test_a_file_that_cannot_be_read_is_wrong_usage(shell: Shell) -> None:
    assert "nowhere" in shell.app("enqueue", "tasks.add", "--file", "nowhere").why
    Path(shell.folder / "bad").write_bytes(b"\xff\xfe")
    assert "cannot be read" in shell.app("enqueue", "tasks.add", "--file", "bad").why


def test_if_a_write_fails_it_is_said_up_to_which_line_jobs_are_stored(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    add = SqliteStore.add

    def fail_the_second(self: SqliteStore, jobs: Sequence[Job]) -> Sequence[bool]:
        calls.append(len(jobs))
        if len(calls) == 2:
            raise StoreUnavailable("the disk is away")
        return add(self, jobs)

    monkeypatch.setattr(SqliteStore, "add", fail_the_second)
    path = write(shell, "", *(f"[{number}]" for number in range(700)))
    answer = shell.app("enqueue", "tasks.add", "--file", path)
    assert answer.code == 3
    assert "500 of 700 jobs are stored: up to line 501." in answer.err
    assert len(shell.ids("--limit", "1000")) == 500
