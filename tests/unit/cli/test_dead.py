"""`dueline dead` (R3)."""

import json
import os
import pty
import subprocess
import sys

import pytest

from tests.harness.shell import WAIT_S, Shell


@pytest.fixture
def dead(shell: Shell) -> list[str]:
    """Make three jobs that died: two in the queue default, one in mute."""
    ids = [shell.enqueue("tasks.fail", why) for why in ("one", "two")]
    ids.append(shell.enqueue("tasks.fail", "three", "--queue", "mute"))
    shell.work()
    return ids


def test_the_dead_are_listed_with_their_errors(shell: Shell, dead: list[str]) -> None:
    text = shell.app("dead", "list").out
    assert text.splitlines()[0].split() == ["ID", "AT", "TASK", "ERROR"]
    assert "tasks.fail  ValueError: one" in text
    shown = shell.app("dead", "list", "-o", "json").data
    assert sorted(job["id"] for job in shown) == sorted(dead)
    assert {job["state"] for job in shown} == {"dead"}
    (job,) = shell.app("dead", "list", "--queue", "mute", "-o", "json").data
    assert (job["id"], job["queue"]) == (dead[2], "mute")
    assert shell.ids() == []
    assert sorted(shell.ids("--state", "dead")) == sorted(dead)


def test_a_dead_job_is_shown_whole(shell: Shell, dead: list[str]) -> None:
    data = shell.app("dead", "show", dead[0], "-o", "json").data
    assert (data["error"], data["errors"]) == ("ValueError: one", 1)
    assert data["arguments"] == ["one"]
    assert [attempt["outcome"] for attempt in data["attempts"]] == ["dead"]


def test_a_dead_job_is_shown_with_its_traceback(shell: Shell, dead: list[str]) -> None:
    data = shell.app("dead", "show", dead[0], "-o", "json").data
    assert data["error"] == "ValueError: one"
    head, *_, frame, error = data["traceback"].strip().splitlines()
    assert head == "Traceback (most recent call last):"
    assert (frame, error) == ("    raise ValueError(why)", "ValueError: one")
    text = shell.app("jobs", "show", dead[0]).out
    assert "traceback" in text
    assert "\n    raise ValueError(why)\nValueError: one\n" in text
    assert "Traceback" not in shell.app("dead", "list", "-o", "csv").out
    assert "Traceback" not in shell.app("jobs", "explain", dead[0], "-o", "json").out


def test_the_dead_are_redriven_at_a_rate(shell: Shell, dead: list[str]) -> None:
    # R17
    redrive = ("dead", "redrive", "-o", "json")
    assert shell.app(*redrive, "--queue", "default").code == 2  # no rate
    assert shell.app(*redrive, "--rate", "9/s").code == 2  # no filter
    assert shell.app(*redrive, "--all", "--rate", "9/s").code == 5  # no yes
    assert shell.app(*redrive, "--stop").code == shell.app(*redrive, "--resume").code == 4
    data = shell.app(*redrive, "--queue", "default", "--rate", "600/m", "--yes").data
    assert (data["state"], data["retried"], data["matching"]) == ("done", 2, 2)
    assert sorted(shell.ids()) == sorted(dead[:2])
    (listed,) = shell.app("dead", "redrives", "-o", "json").data
    assert (listed["filter"], listed["rate_per_s"]) == ("queue:default", 10)


def test_a_redrive_is_interrupted_and_resumed(
    shell: Shell, dead: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dueline.core.clock.SystemClock.sleep", interrupt)
        answer = shell.app("dead", "redrive", "--all", "--rate", "1", "--yes", "-o", "json")
    assert (answer.code, answer.data["state"], answer.data["retried"]) == (130, "stopped", 1)
    data = shell.app("dead", "redrive", "--resume", "--rate", "99", "--yes", "-o", "json").data
    assert (data["state"], data["retried"], data["rate_per_s"]) == ("done", 3, 99)
    assert sorted(shell.ids()) == sorted(dead)


def test_only_dead_jobs_are_shown(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.add", "1")
    answer = shell.app("dead", "show", job_id)
    assert (answer.code, answer.why) == (4, f"The job {job_id} is ready, not dead.")


def test_dead_jobs_are_retried_by_id(shell: Shell, dead: list[str]) -> None:
    answer = shell.app("dead", "retry", dead[0], dead[1], dead[0], "-o", "json")
    assert answer.data == {"matching": 2, "retried": 2, "left": 0, "dry_run": False}
    assert sorted(shell.ids()) == sorted(dead[:2])
    assert shell.ids("--state", "dead") == [dead[2]]


def test_all_ids_are_looked_at_before_one_is_retried(shell: Shell, dead: list[str]) -> None:
    waiting = shell.enqueue("tasks.add", "1")
    answer = shell.app("dead", "retry", dead[0], waiting)
    assert (answer.code, answer.why) == (5, f"The job {waiting} is ready, not dead.")
    assert len(shell.ids("--state", "dead")) == 3
    answer = shell.app("dead", "retry", dead[0], "00" * 16)
    assert (answer.code, answer.why) == (4, f"No job {'00' * 16} is known.")
    assert len(shell.ids("--state", "dead")) == 3


def test_a_dry_run_only_counts(shell: Shell, dead: list[str]) -> None:
    answer = shell.app("dead", "retry", "--all", "--dry-run", "-o", "json")
    assert (answer.code, answer.err) == (0, "Matching dead-letter jobs: 3.\n")
    assert answer.data == {"matching": 3, "retried": 0, "left": 0, "dry_run": True}
    assert sorted(shell.ids("--state", "dead")) == sorted(dead)


def test_many_are_retried_only_with_a_yes(shell: Shell, dead: list[str]) -> None:
    process = shell.spawn("--store", "sqlite:///jobs.db", "dead", "retry", "--queue", "mute")
    out, err = process.communicate(timeout=WAIT_S)
    assert (process.returncode, out) == (5, "")
    assert err.startswith("Matching dead-letter jobs: 1.\ndueline: refused; nothing was changed\n")
    assert len(shell.ids("--state", "dead")) == 3
    answer = shell.app("dead", "retry", "--queue", "mute", "--yes")
    assert "retried   1\n" in answer.out
    assert sorted(shell.ids("--state", "dead")) == sorted(dead[:2])


@pytest.mark.long
@pytest.mark.parametrize(("said", "code", "left"), [("y", 0, 0), ("n", 5, 3)])
def test_a_person_is_asked(shell: Shell, dead: list[str], said: str, code: int, left: int) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "dueline", "--store", "sqlite:///jobs.db", "dead", "retry", "--all"],
        cwd=shell.folder,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.write(ours, f"{said}\n".encode())
    _, err = process.communicate(timeout=WAIT_S)
    os.close(ours)
    os.close(theirs)
    assert "Retry them? [y/N]" in err
    assert process.returncode == code
    assert len(shell.ids("--state", "dead")) == left
    assert len(dead) == 3


def test_nothing_dead_needs_no_yes(shell: Shell) -> None:
    answer = shell.app("dead", "retry", "--all", "-o", "ndjson")
    assert answer.code == 0
    assert json.loads(answer.out)["matching"] == 0


@pytest.mark.parametrize("words", [[], ["00" * 16, "--all"], ["00" * 16, "--task", "t"]])
def test_either_ids_or_a_filter_are_needed(shell: Shell, words: list[str]) -> None:
    answer = shell.app("dead", "retry", *words)
    assert answer.code == 2
    assert answer.why == "Pass either ids, or --all or a filter."


def test_a_retry_says_why_jobs_are_left(shell: Shell) -> None:
    (shell.folder / "keyed.py").write_text(
        "from dueline import Dueline, Retry\n"
        "app = Dueline('sqlite:///jobs.db')\n"
        "@app.task(name='keyed', unique='k', retry=Retry(attempts=1))\n"
        "def keyed() -> None:\n    raise ValueError\n"
    )
    keyed = ("-A", "keyed:app")
    assert shell(*keyed, "enqueue", "keyed").code == 0
    assert shell(*keyed, "worker", "--burst").code == 0
    assert shell(*keyed, "enqueue", "keyed").code == 0
    answer = shell(*keyed, "dead", "retry", "--all", "--yes", "-o", "json")
    assert answer.data == {"matching": 1, "retried": 0, "left": 1, "dry_run": False}
    assert "Left 1 job unchanged: another job has their unique key, " in answer.err
