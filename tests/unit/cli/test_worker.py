"""`dueline worker`."""

import re
import signal
import time
from pathlib import Path

import pytest

from tests.harness.forked import Process
from tests.harness.shell import WAIT_S, Shell


def problems(log: str) -> list[str]:
    """Return the lines of a worker's log other than those of its start and stop."""
    return [line for line in log.splitlines() if "Z INFO " not in line]


def test_a_burst_ends_when_nothing_is_due(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.add", "1")
    later = shell.enqueue("tasks.add", "1", "--after", "1h")
    answer = shell("worker", "tasks:app", "--burst")
    assert (answer.code, answer.out, problems(answer.err)) == (0, "", [])
    assert shell.ids() == [later]
    assert shell.ids("--state", "done") == [job_id]


def test_it_serves_the_queues_of_its_tasks_unless_told_which(shell: Shell) -> None:
    fast, slow = shell.enqueue("tasks.add", "1"), shell.enqueue("tasks.sleep", "0")
    assert shell("worker", "tasks:app", "--burst", "-q", "default:2", "-q", "mute").code == 0
    assert shell.ids("--state", "done") == [fast]
    assert shell("worker", "tasks:app", "--burst").code == 0
    assert slow in shell.ids("--state", "done")


def test_a_failure_is_one_line_with_its_traceback(shell: Shell) -> None:
    fine, job_id = shell.enqueue("tasks.add", "1"), shell.enqueue("tasks.fail", "bad luck")
    err = shell("worker", "tasks:app", "--burst").err
    stamped = [line for line in err.splitlines() if re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z ", line)]
    (line,) = problems("\n".join(stamped))
    assert f" ERROR job={job_id} task=tasks.fail attempt=1 dead after " in line
    assert "Traceback (most recent call last):\n" in err
    assert problems(err)[-1].endswith("ValueError: bad luck")
    assert f" INFO job={fine} task=tasks.add attempt=1 done after " in err


def waited_for(path: Path) -> None:
    """Wait until a file is there."""
    give_up = time.monotonic() + WAIT_S
    while not path.exists():
        assert time.monotonic() < give_up
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["0", "1"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_lets_running_jobs_end(
    shell: Shell, processes: str, number: signal.Signals, code: int
) -> None:
    (shell.folder / "marks.py").write_text(
        "import time\nfrom pathlib import Path\nfrom dueline import Dueline\n"
        "app = Dueline('sqlite:///jobs.db')\n"
        "@app.task\ndef mark() -> None:\n"
        "    Path('began').touch()\n    time.sleep(1)\n    Path('ended').touch()\n"
    )
    assert shell("--app", "marks.py:app", "enqueue", "marks.mark").code == 0
    worker = shell.spawn("worker", "marks:app", "--processes", processes, "--drain", "20s")
    waited_for(shell.folder / "began")
    worker.send_signal(number)
    out, err = worker.communicate(timeout=WAIT_S)
    assert (worker.returncode, out, problems(err)) == (code, "", [])
    assert f"INFO stopped: {number.name}" in err
    assert (shell.folder / "ended").exists()
    assert shell("--store", "sqlite:///jobs.db", "jobs", "list", "-o", "json").data == []


def test_what_does_not_end_in_time_is_given_back(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.sleep", "60")
    worker = shell.spawn("worker", "tasks:app", "--drain", "100ms", "-v")
    give_up = time.monotonic() + WAIT_S
    while shell.ids("--state", "running") != [job_id]:
        assert time.monotonic() < give_up
    worker.terminate()
    _, err = worker.communicate(timeout=WAIT_S)
    assert worker.returncode == 143
    assert "given_back" in err
    assert shell.ids("--state", "ready") == [job_id]


@pytest.mark.slow
def test_an_app_in_a_file_of_another_folder_has_child_processes_too(shell: Shell) -> None:
    (shell.folder / "pkg").mkdir()
    (shell.folder / "tasks.py").rename(shell.folder / "pkg" / "tasks.py")
    place = "pkg/tasks.py:app"
    job = shell("--app", place, "enqueue", "tasks.add", "1")
    assert job.code == 0
    worker = shell.spawn("worker", place, "--burst", "--processes", "1")
    _, err = worker.communicate(timeout=WAIT_S)
    assert (worker.returncode, problems(err)) == (0, [])
    done = shell("--app", place, "jobs", "list", "--state", "done", "-o", "json").data
    assert [ended["id"] for ended in done] == [job.out.strip()]


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["-q", "No!"], 2, "'No!' is not a queue name"),
        (["-q", "mail:x"], 2, "'mail:x' is not NAME or NAME:SLOTS"),
        (["-q", "mail:"], 2, "'mail:' is not NAME or NAME:SLOTS"),
        (["-q", "mail:0"], 2, "`queues['mail']` must be an integer of at least 1"),
        (["--concurrency", "0"], 2, "`concurrency` must be an integer of at least 1"),
        (["--processes", "-1"], 2, "`processes` must be an integer of at least 0"),
        (["--drain", "soon"], 2, "'soon' is not a duration"),
    ],
)
def test_wrong_settings_are_told_and_nothing_runs(
    bare_shell: Shell, words: list[str], code: int, why: str
) -> None:
    answer = bare_shell("worker", "tasks:app", "--burst", *words)
    assert (answer.code, answer.out) == (code, "")
    assert why in answer.why
    assert not (bare_shell.folder / "jobs.db").exists()


def test_a_worker_needs_an_app(shell: Shell) -> None:
    assert shell("worker").code == 7


def test_a_live_worker_is_seen(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.sleep", "60")
    worker = shell.spawn("worker", "tasks:app")
    try:
        give_up = time.monotonic() + WAIT_S
        reason = ""
        while reason != "running":
            assert time.monotonic() < give_up, reason
            answer = shell.app("jobs", "explain", job_id, "-o", "json")
            reason = answer.data["reason"]
        assert "It is running: attempt 1, in worker " in shell.app("jobs", "explain", job_id).out
        (live,) = shell.app("queues", "show", "slow", "-o", "json").data["live_workers"]
        assert f":{worker.pid}:" in live["worker"]
        assert f":{worker.pid}:" in shell.app("doctor").out
    finally:
        worker.terminate()
        worker.terminate()
        _kill(worker)


def _kill(worker: Process) -> None:
    worker.kill()
    worker.communicate(timeout=WAIT_S)
