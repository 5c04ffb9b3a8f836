"""Needs of jobs, and what workers have, on the command line."""

import pytest

from dueline.core.worker_needs import ENVIRONMENT
from tests.harness.shell import Shell


def state(shell: Shell, job: str) -> object:
    """Return the state of a job."""
    return shell.app("jobs", "show", job, "-o", "json").data["state"]


def test_a_worker_says_what_it_has(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [shell.enqueue("tasks.echo", "1", "--need", word) for word in ("gpu=2", "region=eu")]
    shell.app("worker", "--burst", "--has", "gpu=1", "--has", "region=us")
    assert [state(shell, job) for job in jobs] == ["ready", "ready"]
    monkeypatch.setenv(ENVIRONMENT, "gpu=2, region=us")
    shell.app("worker", "--burst")
    assert [state(shell, job) for job in jobs] == ["done", "ready"]
    shell.app("worker", "--burst", "--has", "region=eu")  # not what the environment says
    assert state(shell, jobs[1]) == "done"


def test_other_words_are_refused(shell: Shell) -> None:
    for words in (("worker", "--burst", "--has", "gpu"), ("worker", "--burst", "--has", "gpu=-1")):
        assert shell.app(*words).code == 2
    assert shell.app("enqueue", "tasks.echo", "1", "--need", "gpu=0").code == 2


def test_the_list_of_workers_shows_what_is_free(shell: Shell) -> None:
    with shell.worker("--has", "gpu=2", "--has", "region=eu"):
        (worker,) = shell.app("workers", "list", "-o", "json").data
        assert worker["has"] == worker["free"] == ["gpu=2", "region=eu"]
        assert "region=eu" in shell.app("workers", "list").out
