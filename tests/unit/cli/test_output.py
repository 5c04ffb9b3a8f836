"""What results look like."""

import os
import pty
import subprocess
import sys

import pytest

from dueline.cli.output import Entry, Instant, Output, Raw, Span
from dueline.core.text import printable
from tests.harness.shell import WAIT_S, Shell


def on_a_terminal(shell: Shell, *words: str, **environment: str) -> str:
    """Run a command on a terminal of 80 columns; answer what it shows."""
    ours, theirs = pty.openpty()
    known = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen(
        [sys.executable, "-m", "dueline", "--store", "sqlite:///jobs.db", *words],
        cwd=shell.folder,
        env={**known, "TERM": "xterm", "COLUMNS": "80", **environment},
        stdout=theirs,
        stderr=subprocess.PIPE,
    )
    assert process.wait(timeout=WAIT_S) == 0
    process.communicate()
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # that is how a closed terminal ends
        pass
    os.close(ours)
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.long
def test_a_terminal_gets_colours_unless_they_are_unwanted(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.add", "1")
    assert "\x1b[" in on_a_terminal(shell, "jobs", "list")
    plain = on_a_terminal(shell, "jobs", "list", NO_COLOR="1")
    assert "\x1b[3" not in plain
    assert job_id in plain
    assert "\x1b" not in shell.app("jobs", "list").out


@pytest.mark.slow
def test_what_draws_on_terminals_is_not_loaded_without_one() -> None:
    program = "import sys, dueline.cli; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.long
def test_a_table_fits_80_columns_and_keeps_ids_whole(shell: Shell) -> None:
    ids = [shell.enqueue("tasks.add", "1"), shell.enqueue("tasks.fail", "long " * 40)]
    shell.work()
    ids += [shell.enqueue("tasks.add", "1", "--queue", "a-rather-long-name-of-a-queue")]
    for command in ("jobs list", "jobs list --state done", "queues list", "dead list"):
        shown = on_a_terminal(shell, *command.split(), TERM="dumb")
        assert max(len(line) for line in shown.splitlines()) <= 80, command
        if command != "queues list":
            assert any(job_id in shown for job_id in ids), command


def test_what_a_terminal_would_obey_is_made_visible(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.fail", "\x1b[31mred\x07\u202e")
    shell.work()
    text = shell.app("dead", "show", job_id).out
    assert "ValueError: \\x1b[31mred\\x07\\u202e" in text
    assert "\x1b" not in text
    assert printable("a\tb\nc\r") == "a\tb\nc\\r"


def test_values_have_a_form_for_people_and_one_for_programs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    entry: Entry = {
        "at": Instant(60_000_000), "took": Span(1_500_000), "result": Raw('{"a": 1}'),
        "bad": Raw("{"), "names": ("x", "y"), "of": {"a": 1}, "alone": True, "none": None,
    }  # fmt: skip
    Output("table", 0, {}).entry(entry)
    assert capsys.readouterr().out.splitlines() == [
        "at      1970-01-01T00:01:00Z (in 1m)",
        "took    1s",
        'result  {"a": 1}',
        "bad     {",
        "names   x, y",
        "of      a: 1",
        "alone   yes",
    ]
    Output("ndjson", 0, {}).entry(entry)
    assert capsys.readouterr().out == (
        '{"at": "1970-01-01T00:01:00.000000Z", "took_s": 1.5, "result": {"a": 1}, "bad": "{", '
        '"names": ["x", "y"], "of": {"a": 1}, "alone": true, "none": null}\n'
    )


@pytest.mark.slow
def test_a_reader_that_leaves_early_is_no_error(shell: Shell) -> None:
    for _ in range(30):
        shell.enqueue("tasks.add", "1")
    process = shell.spawn("--store", "sqlite:///jobs.db", "jobs", "list")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    err = process.stderr.read()
    process.wait(timeout=WAIT_S)
    process.stderr.close()
    assert "Traceback" not in err


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help_is_printed_where_nothing_is_asked(shell: Shell, words: list[str]) -> None:
    answer = shell(*words)
    assert answer.code == 0
    assert answer.out.startswith("Usage: dueline [OPTIONS] COMMAND")


def test_a_distance_of_days_in_a_table_has_its_hours(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1", "--after", "2d23h30m")
    assert "in 2d23h" in shell("--store", "sqlite:///jobs.db", "jobs", "list").out
