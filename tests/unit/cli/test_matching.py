"""Actions on all jobs that match."""

import signal
from collections import Counter

import pytest

from dueline import Dueline
from dueline.jobs.history import attempts
from dueline.jobs.queue import EnqueueRequest
from tests.harness.shell import Shell

COME_TO = 450
"""In the middle of a page."""

DYING = f"""
import os, signal
from dueline.jobs import bulk as mass
from tasks import app

reschedule, left = mass._is_rescheduled, [{COME_TO}]


def is_rescheduled(*args):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return reschedule(*args)


mass._is_rescheduled = is_rescheduled
"""


def test_all_that_match_are_cancelled(shell: Shell) -> None:
    keep = [shell.enqueue("tasks.sleep", "0"), shell.enqueue("tasks.add", "1", "--after", "1h")]
    gone = [shell.enqueue("tasks.add", str(number)) for number in range(3)]
    words = ("jobs", "cancel", "--all-matching", "--task", "tasks.add", "--state", "ready")
    answer = shell.app(*words, "--dry-run", "-o", "json")
    assert (answer.code, answer.err) == (0, "Matching jobs: 3.\n")
    assert (answer.data["matching"], answer.data["cancelled"]) == (3, 0)
    assert shell.app(*words).code == 5
    assert len(shell.ids()) == 5
    answer = shell.app(*words, "--yes", "-o", "json")
    assert answer.data == {
        "matching": 3, "cancelled": 3, "asked_to_stop": 0, "left": 0, "dry_run": False,
    }  # fmt: skip
    assert sorted(shell.ids()) == sorted(keep)
    assert shell.app("jobs", "show", gone[0], "-o", "json").data["state"] == "cancelled"


def test_a_refusal_is_three_lines_behind_the_number(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1")
    err = shell.app("jobs", "cancel", "--all-matching").err.splitlines()
    assert err == [
        "Matching jobs: 1.",
        "dueline: refused; nothing was changed",
        "    why: The change was not confirmed. Jobs that would be cancelled: 1.",
        "    try: Add --yes, or --dry-run to count only.",
    ]


def test_a_limit_leaves_the_rest_for_a_repeat(shell: Shell) -> None:
    for number in range(5):
        shell.enqueue("tasks.add", str(number))
    words = ("jobs", "cancel", "--all-matching", "--yes", "--limit", "3", "-o", "json")
    answer = shell.app(*words)
    assert answer.err == "Matching jobs: 3, and more: run this again.\n"
    assert answer.data["cancelled"] == 3
    assert shell.app(*words).data["cancelled"] == 2
    assert shell.ids() == []


@pytest.mark.slow
def test_what_is_killed_goes_on_when_it_is_repeated_and_comes_to_each_job_once(
    shell: Shell,
) -> None:
    # O6
    shell.enqueue("tasks.add", "1")
    app = Dueline(f"sqlite:///{shell.folder}/jobs.db?synchronous=NORMAL")
    app.queue("many", history="all")
    jobs = app.queues.enqueue(EnqueueRequest("many", "tasks.add", 0, [b"[1]"] * 1200))
    words = ("jobs", "reschedule", "--all-matching", "--queue", "many", "--after", "1h", "--yes")
    (shell.folder / "dying.py").write_text(DYING, encoding="utf-8")

    def changed() -> Counter[str]:
        told = attempts(app.store, "many", 1, everything=True)
        return Counter(attempt.job for attempt in told if attempt.outcome == "changed")

    process = shell.spawn("--app", "dying:app", *words)
    _, err = process.communicate()
    assert process.returncode == -signal.SIGKILL, err
    before = changed()
    assert len(before) == COME_TO
    answer = shell.app(*words, "-o", "json")
    assert answer.code == 0
    assert "Resuming the run of " in answer.err
    assert answer.data["rescheduled"] == len(jobs) - COME_TO
    assert changed() == Counter(job.id.hex() for job in jobs)
    assert len({row.at_us for row in app.queues.engine.jobs_of("many")}) == 1
    app.close()


def test_running_ones_are_asked(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.sleep", "60")
    shell.start(job_id)
    answer = shell.app("jobs", "cancel", "--all-matching", "--yes", "-o", "json")
    assert (answer.data["cancelled"], answer.data["asked_to_stop"]) == (0, 1)


def test_those_of_a_due_time_are_chosen(shell: Shell) -> None:
    soon = shell.enqueue("tasks.add", "1", "--due", "2030-01-01T00:00:00Z")
    late = shell.enqueue("tasks.add", "1", "--due", "2031-01-01T00:00:00Z")
    words = ("jobs", "retry", "--all-matching", "--due-before", "2030-06-01T00:00:00Z")
    assert shell.app(*words, "--yes", "-o", "json").data["retried"] == 1
    assert shell.ids("--state", "ready") == [soon]
    assert shell.ids("--state", "scheduled") == [late]
    answer = shell.app("jobs", "retry", "--all-matching", "--due-before", "soon")
    assert (answer.code, answer.why) == (2, "'soon' is not an ISO 8601 timestamp.")
    assert shell.app(*words[:-1], "2030-06-01T00:00:00").code == 2


def test_dead_ones_are_retried_by_their_state(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.fail", "no")
    shell.work()
    words = ("jobs", "retry", "--all-matching", "--yes", "-o", "json")
    assert shell.app(*words).data["matching"] == 0
    assert shell.app(*words, "--state", "dead").data["retried"] == 1
    assert shell.ids("--state", "ready") == [job_id]


def test_all_that_match_are_rescheduled(shell: Shell) -> None:
    ids = [shell.enqueue("tasks.add", str(number)) for number in range(3)]
    other = shell.enqueue("tasks.sleep", "0")
    words = ("jobs", "reschedule", "--all-matching", "--queue", "default", "--after", "1h")
    assert shell.app(*words).code == 5
    assert shell.app(*words, "--yes", "-o", "json").data["rescheduled"] == 3
    assert sorted(shell.ids("--state", "scheduled")) == sorted(ids)
    assert shell.ids("--state", "ready") == [other]
    assert shell.app(*words, "--state", "dead").why == "Dead-letter jobs have no due time."


@pytest.mark.parametrize("verb", ["cancel", "retry"])
def test_ids_or_all_that_match_but_not_both(shell: Shell, verb: str) -> None:
    job_id = shell.enqueue("tasks.add", "1")
    for words in ([], [job_id, "--all-matching"], [job_id, "--queue", "default"], ["--queue", "x"]):
        answer = shell.app("jobs", verb, *words)
        assert answer.code == 2, words
        assert answer.why.startswith("Pass either ids, or --all-matching")
    assert shell.app("jobs", verb, "--all-matching", "--state", "done").code == 2
    assert shell.app("jobs", verb, "--all-matching", "--queue", "nothing").code == 4


def test_dead_jobs_are_not_cancelled(shell: Shell) -> None:
    answer = shell.app("jobs", "cancel", "--all-matching", "--state", "dead", "--yes")
    assert (answer.code, answer.why) == (2, "Dead-letter jobs cannot be cancelled.")


def test_dead_jobs_of_some_age_are_forgotten(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.fail", "no")
    shell.work()
    young = shell.app("dead", "purge", "--older-than", "1h", "--yes", "-o", "json")
    assert young.data == {"matching": 0, "deleted": 0, "dry_run": False}
    words = ("dead", "purge", "--older-than", "0s", "-o", "json")
    assert shell.app(*words, "--dry-run").data["matching"] == 1
    assert shell.app(*words).code == 5
    assert shell.ids("--state", "dead") == [job_id]
    assert shell.app(*words, "--yes").data["deleted"] == 1
    assert shell.ids("--state", "dead") == []
    assert shell.app("dead", "purge").code == 2
    assert shell.app("dead", "purge", "--older-than", "old").code == 2
