"""What operators do on the command line is recorded with what they do on the dashboard."""

import os
import pwd
import socket

from dueline import Dueline
from dueline.admin.operations import Action
from tests.harness.shell import STORE, Shell


def actions() -> list[Action]:
    """Read what was done, the first first."""
    app = Dueline(STORE)
    recorded = list(reversed(app.admin.actions()))
    app.close()
    return recorded


def test_changes_are_recorded_with_who_made_them_and_how_they_ended(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.add", "1")
    assert shell.app("queues", "pause", "default", "--tenant", "acme").code == 0
    assert shell.app("jobs", "cancel", job_id).code == 0
    assert shell.app("jobs", "retry", "0" * 32).code == 4
    assert shell.app("limits", "set", "host", "3").code == 0
    assert shell.app("queues", "set", "default", "--shards", "0").code == 2
    recorded = actions()
    assert [(action.what, action.result.partition(":")[0]) for action in recorded] == [
        ("queues pause", "done"),
        ("jobs cancel", "1 of 1 jobs"),
        ("jobs retry", "0 of 1 jobs"),
        ("limits set", "done"),
        ("queues set", "rejected"),
    ]
    user = pwd.getpwuid(os.geteuid()).pw_name
    assert {action.who for action in recorded} == {f"{user}@{socket.gethostname()}"}
    assert {action.door for action in recorded} == {"command line"}
    text = shell.app("jobs", "history", job_id).out
    assert f"cancelled by {user}@{socket.gethostname()} (command line)" in text
    assert "default" in recorded[0].target
    assert "acme" in recorded[0].target
    assert job_id in recorded[1].target


def test_a_change_that_was_not_confirmed_and_a_count_are_not_recorded(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1")
    cancel = ("jobs", "cancel", "--all-matching", "--queue", "default")
    assert shell.app(*cancel).code == 5
    assert shell.app(*cancel, "--dry-run").code == 0
    assert actions() == []
    assert shell.app(*cancel, "--yes").code == 0
    (done,) = actions()
    assert (done.what, done.result) == ("jobs cancel", "done")
    assert "queue=default" in done.target


def test_reading_records_nothing(shell: Shell) -> None:
    for words in (["queues", "list"], ["jobs", "list"], ["dead", "list"], ["workers", "list"]):
        assert shell.app(*words).code == 0
    assert actions() == []
