"""Moves of jobs to another queue on the command line (O6)."""

import json

from tests.harness.shell import Shell


def moved(shell: Shell, *words: str) -> dict[str, object]:
    """Run `jobs move` from `default` to `slow`; return its answer."""
    command = ("jobs", "move", "--from-queue", "default", "--to", "slow", *words, "-o", "json")
    answer: dict[str, object] = shell.app(*command).data
    return answer


def test_jobs_are_moved_by_a_filter(shell: Shell) -> None:
    jobs = [shell.enqueue("tasks.echo", "1", "--priority", text) for text in ("1", "5")]
    held = shell.enqueue("tasks.echo", "2", "--order-key", "k")
    shell.enqueue("tasks.sleep", "0")
    assert moved(shell, "--dry-run") == {
        "matching": 3, "moved": 2, "left": 1, "left_by_reason": {"order key": 1}, "dry_run": True,
    }  # fmt: skip
    refused = shell.app("jobs", "move", "--from-queue", "default", "--to", "slow")
    assert refused.code != 0
    assert moved(shell, "--filter", "priority>3", "--yes")["moved"] == 1
    assert shell.ids("--queue", "slow", "--task", "tasks.echo") == [jobs[1]]
    answer = shell.app("jobs", "move", "--from-queue", "default", "--to", "slow", "--yes")
    assert "Left 1 in the queue default: its order key belongs to its queue." in answer.err
    shell.work()
    for job in (*jobs, held):
        assert shell.app("jobs", "show", job, "-o", "json").data["state"] == "done"
    events = shell.app("jobs", "history", jobs[1], "-o", "ndjson").out.splitlines()
    errors = [json.loads(line)["error"] for line in events]
    assert errors[0].startswith("moved to the queue slow by ")
    assert errors[1].startswith("moved from the queue default by ")
    assert "(command line)" in errors[1]


def test_jobs_are_moved_by_their_ids(shell: Shell) -> None:
    job, held = shell.enqueue("tasks.echo", "1"), shell.enqueue("tasks.echo", "--order-key", "k")
    shell.enqueue("tasks.sleep", "0")
    answer = shell.app("jobs", "move", job, "--to", "slow", "-o", "json")
    assert answer.data == [{"id": job, "change": "moved"}]
    assert shell.app("jobs", "move", job, held, "--to", "slow").code == 5
    assert shell.app("jobs", "move", held, "--to", "none").code == 4
    assert shell.app("jobs", "move", "--to", "slow").code == 2
    assert shell.app("jobs", "move", job, "--from-queue", "slow", "--to", "default").code == 2
    words = ("--from-queue", "default", "--to", "slow", "--filter", "queue:slow", "--yes")
    both = shell.app("jobs", "move", *words)
    assert "An option and the word queue: exclude each other" in both.err
    assert shell.app("jobs", "move", *words[:4], "--state", "done", "--yes").code == 2
