"""Bursts say what they leave; `--until-done` waits for it; the help has headings (W7)."""

from dueline.cli.main import _PLACES
from dueline.cli.purposes import PURPOSES
from tests.harness.shell import Shell

TASKS = """
from dueline import Dueline, Retry

app = Dueline("sqlite:///jobs.db")
runs = []


@app.task(retry=Retry.fixed(0.4, attempts=3, jitter=0))
def flaky(fails: int) -> str:
    runs.append(fails)
    if runs.count(fails) <= fails:
        raise OSError("not yet")
    return "done"


@app.task
def hello(name: str, count: int = 1) -> str:
    return name * count
"""


def write(shell: Shell) -> None:
    (shell.folder / "tasks.py").write_text(TASKS, encoding="utf-8")


def test_a_burst_says_what_is_left_and_exits_8(shell: Shell) -> None:
    write(shell)
    shell.enqueue("tasks.flaky", "1")
    answer = shell.app("worker", "--burst")
    assert answer.code == 8
    assert "left: 1 retrying" in answer.err


def test_a_burst_that_leaves_nothing_exits_0(shell: Shell) -> None:
    write(shell)
    shell.enqueue("tasks.hello", "Ann")
    shell.enqueue("tasks.hello", "Ben", "--after", "1h")
    answer = shell.app("worker", "--burst")
    assert answer.code == 0
    assert "left: 1 scheduled" in answer.err


def test_until_done_waits_for_retries(shell: Shell) -> None:
    write(shell)
    job, other = shell.enqueue("tasks.flaky", "2"), shell.enqueue("tasks.flaky", "9")
    answer = shell.app("worker", "--until-done")
    assert answer.code == 0
    assert "left: 1 dead" in answer.err
    assert shell.app("jobs", "show", job, "-o", "json").data["state"] == "done"
    assert shell.app("jobs", "show", other, "-o", "json").data["state"] == "dead"


def test_until_done_does_not_wait_for_what_nobody_runs(shell: Shell) -> None:
    write(shell)
    shell.enqueue("tasks.hello", "Ann")
    assert shell.app("queues", "pause", "default").code == 0
    answer = shell.app("worker", "--until-done")
    assert answer.code == 8
    assert "left: 1 ready" in answer.err


def test_each_command_has_a_purpose(shell: Shell) -> None:
    named = [name for names in PURPOSES.values() for name in names]
    assert sorted(named) == sorted(name for name in _PLACES if " " not in name)
    text = shell.app("--help").out
    assert [heading for heading in PURPOSES if f"{heading}:\n" not in text] == []
    assert "..." not in text.partition("Begin and run")[2]


def test_arguments_that_look_like_options_or_objects_are_explained(shell: Shell) -> None:
    write(shell)
    assert (
        "written first_name=VALUE" in shell.app("enqueue", "tasks.hello", "--first-name", "A").why
    )
    answer = shell.app("enqueue", "tasks.hello", '{"name": "Ann Lee", "count": 2}')
    assert "Write arguments by name: `name='\"Ann Lee\"' count=2`." in answer.err
    assert shell.app("enqueue", "tasks.hello", 'name="Ann Lee"', "count=2").code == 0


def test_counts_of_stats_add_up(shell: Shell) -> None:
    write(shell)
    shell.enqueue("tasks.flaky", "1")
    shell.enqueue("tasks.hello", "Ann")
    shell.app("worker", "--burst")
    data = shell.app("stats", "-o", "json").data
    parts = ("done", "failed", "snoozed", "given_back", "cancelled", "expired", "lost")
    assert data["ended"] == sum(data[name] for name in parts) == 2


def test_words_that_people_try_are_answered(shell: Shell) -> None:
    for words, said in (
        (("pause", "mail"), "queues pause"),
        (("retry", "x"), "jobs retry"),
        (("logs",), "jobs logs"),
        (("limits", "rates"), "limits list"),
        (("dead", "errors"), "dead list --group"),
        (("jobs", "delete"), "dead purge"),
        (("workers", "pause"), "workers quiet"),
    ):
        assert said in shell.app(*words).why, words


def test_dead_jobs_are_listed_latest_first_and_grouped(shell: Shell) -> None:
    ids = []
    for why in ("code 17", "code 18", "full"):
        ids.append(shell.enqueue("tasks.fail", why))
        shell.work()
    listed = shell.app("dead", "list", "-o", "json").data
    assert [job["id"] for job in listed] == ids[::-1]
    (job,) = shell.app("dead", "list", "--error", "FULL", "-o", "json").data
    assert job["id"] == ids[2]
    groups = shell.app("dead", "list", "--group", "-o", "json").data
    assert [(group["jobs"], group["error"]) for group in groups] == [
        (2, "ValueError: code N"),
        (1, "ValueError: full"),
    ]
    assert len(shell.app("dead", "list", "--group", "--error", "full", "-o", "json").data) == 1
    assert len(shell.app("dead", "list", "--since", "1h", "-o", "json").data) == 3
    assert shell.app("dead", "list", "--since", "2999-01-01T00:00:00Z", "-o", "json").data == []
    assert shell.app("dead", "list", "--since", "yesterday").code == 2
