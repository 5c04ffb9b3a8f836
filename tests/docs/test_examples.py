"""The examples, each run alone."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dueline import Dueline, Retry
from dueline.web import dashboard
from tests.harness.web import serving

EXAMPLES = Path(__file__).parents[2] / "examples"
LINES_MAX = 60


def run(name: str, folder: Path, *words: str) -> list[str]:
    """Run an example in an empty folder; return the lines that it prints."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) == []
    return done.stdout.splitlines()


def test_hello_runs_the_due_job(tmp_path: Path) -> None:
    assert run("hello", tmp_path) == [
        "Ben's job is ready",
        "Hello, Ben!",
        "Ann's job is scheduled",
        "Ann's job is cancelled",
    ]


@pytest.mark.slow
def test_retries_shows_which_errors_are_retried(tmp_path: Path) -> None:
    lines = run("retries", tmp_path)
    assert sorted(lines[:-4]) == [
        "busy: attempt 1",
        "busy: attempt 2",
        "flaky: attempt 1",
        "flaky: attempt 2",
        "flaky: attempt 3",
        "wrong: attempt 1",
    ]
    assert lines[-4:] == [
        "flaky fetched",
        "busy fetched",
        "dead: ValueError: no such page",
        "found at poll 3, attempt 1",
    ]


def test_priorities_prints_in_the_order_of_urgency(tmp_path: Path) -> None:
    assert run("priorities", tmp_path) == [
        "urgent, priority 50",
        "first, priority 0",
        "second, priority 0",
        "bulk, priority -5",
        "due later, despite priority 1000",
    ]


def test_a_worker_in_another_language_runs_jobs(tmp_path: Path) -> None:
    app = Dueline("memory://")
    app.queue("texts")
    shout = app.unchecked("shout", queue="texts").using(retry=Retry(delays=[0]))
    good, bad = shout.enqueue("hello"), shout.enqueue(5)
    token = "a-token-of-a-worker"  # noqa: S105
    with serving(dashboard(app, tokens={token: "worker"})) as address:
        lines = run("http_worker", tmp_path, f"{address}/api/v1", token, "texts")
    assert good.result() == "HELLO"
    assert lines.count(f"ran {bad.id} attempt 1") == lines.count(f"ran {bad.id} attempt 2") == 1
    assert app.admin.get(bad.id).summary.error == "AttributeError"
    app.close()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short_and_says_why(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < LINES_MAX
    assert path.stem == "__init__" or "\nWhy: " in text


@pytest.mark.long
def test_sharded_workers_handle_everything_though_two_are_killed(tmp_path: Path) -> None:
    lines = run("sharded_workers", tmp_path)
    assert lines[0] == "600 of 600 messages handled, 2 consumers killed"
    assert [line.partition(":")[0] for line in lines[1:]] == ["added latency", "takeover"]


@pytest.mark.long
def test_checks_never_pass_their_limit_and_each_callback_runs_once_though_a_worker_is_killed(
    tmp_path: Path,
) -> None:
    report, killed, checks, *callbacks = run("chapman", tmp_path)
    found = re.fullmatch(r"144 servers checked, at most (\d+) at the same time", report)
    assert found is not None, report
    assert 1 < int(found[1]) <= 16
    assert killed == "1 of 4 workers was killed"
    times = re.fullmatch(r"check_smtp ended (\d+) times", checks)
    assert times is not None, checks
    assert int(times[1]) >= 144  # jobs of the killed worker run again
    assert callbacks == ["analyse ended 1 times", "update_reports ended 1 times"]
