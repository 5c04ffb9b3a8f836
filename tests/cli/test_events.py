"""`dueline events`."""

import json
import signal

from tests.cli.conftest import WAIT_S, Shell


def test_events_are_printed_in_order(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.add", "1")
    shell.work()
    lines = shell.app("events", "-o", "ndjson").out.splitlines()
    assert [json.loads(line)["outcome"] for line in lines] == ["done"]
    assert json.loads(lines[0])["id"] == job_id
    assert shell.app("events", "-q", "default", "--since", "0s", "-o", "ndjson").out == ""
    assert shell.app("events", "-q", "nothing").code == 4


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
