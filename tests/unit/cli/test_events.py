"""`dueline events`."""

import json
import signal

import pytest

from dueline import Dueline
from dueline.cli.job_rows import of_attempt
from dueline.cli.output import Span
from dueline.core.attempt import Attempt
from dueline.core.deadlines import priority_of
from tests.harness.clocks import NOW_US
from tests.harness.shell import WAIT_S, Shell


def test_events_are_printed_in_order(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.add", "1")
    shell.work()
    lines = shell.app("events", "-o", "ndjson").out.splitlines()
    assert [json.loads(line)["outcome"] for line in lines] == ["done"]
    assert json.loads(lines[0])["id"] == job_id
    assert shell.app("events", "-q", "default", "--since", "0s", "-o", "ndjson").out == ""
    assert shell.app("events", "-q", "nothing").code == 4


def test_events_continue_after_a_cursor_or_a_time(shell: Shell) -> None:
    # V9
    shell.enqueue("tasks.add", "1")
    shell.work()
    (line,) = shell.app("events", "-o", "ndjson").out.splitlines()
    job_id = shell.enqueue("tasks.add", "1")
    shell.work()
    for words in (("--cursor", json.loads(line)["cursor"]), ("--since", json.loads(line)["ended"])):
        lines = shell.app("events", *words, "-o", "ndjson").out.splitlines()
        assert json.loads(lines[-1])["id"] == job_id
    assert len(shell.app("events", "--cursor", json.loads(line)["cursor"]).out.splitlines()) == 2
    assert "not a cursor" in shell.app("events", "--cursor", "x").err
    assert "time zone" in shell.app("events", "--since", "2026-01-01").err


def test_a_missed_deadline_is_reported() -> None:
    # T6
    def shown(ended_us: int, *, priority: int, claimed_us: int = NOW_US) -> object:
        attempt = Attempt(
            "", "", "", "", priority, 0, 0, claimed_us, 0, ended_us, "done", "", "", 1
        )
        return of_attempt(attempt).get("late")

    priority = priority_of(NOW_US)
    assert shown(NOW_US + 5, priority=priority) == Span(5)
    assert shown(NOW_US, priority=priority) is None
    assert shown(NOW_US + 5, priority=5) is None
    assert shown(NOW_US + 5, priority=priority, claimed_us=0) is None  # such as its birth


def test_what_was_never_claimed_has_no_time_of_a_claim(shell: Shell) -> None:
    # V9
    app = Dueline("sqlite:///jobs.db")
    app.queue("default", history="all")
    app.queues.engine.catalog.settings("default")
    shell("--store", "sqlite:///jobs.db", "queues", "list")
    shell.enqueue("tasks.add", "0")
    (event,) = shell.app("events", "-o", "ndjson").out.splitlines()
    assert json.loads(event)["outcome"] == "enqueued"
    assert json.loads(event)["claimed"] is None
    app.close()


@pytest.mark.slow
def test_events_can_be_followed(shell: Shell) -> None:
    shell.enqueue("tasks.add", "0")
    shell.work()
    follower = shell.spawn("--app", "tasks:app", "events", "--follow", "-o", "ndjson")
    try:
        assert follower.stdout is not None
        json.loads(follower.stdout.readline())
        job_id = shell.enqueue("tasks.add", "1")
        shell.work()
        assert json.loads(follower.stdout.readline())["id"] == job_id
        follower.send_signal(signal.SIGINT)
        follower.communicate(timeout=WAIT_S)
        assert follower.returncode == 130
    finally:
        follower.kill()
        follower.communicate()
