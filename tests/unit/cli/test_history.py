"""`dueline jobs history` and `jobs tail`."""

import json
import signal

from tests.harness.shell import WAIT_S, Shell


def test_the_log_of_an_attempt_is_printed(shell: Shell) -> None:
    # V11
    tasks = (shell.folder / "tasks.py").read_text(encoding="utf-8")
    logs = """
import logging


@app.task(logs="all")
def chat() -> None:
    logging.getLogger("shop").warning("\\x1b[31mhello")
"""
    (shell.folder / "tasks.py").write_text(tasks + logs, encoding="utf-8")
    job_id, mute = shell.enqueue("tasks.chat"), shell.enqueue("tasks.add", "1")
    shell.work()
    answer = shell.app("jobs", "logs", job_id)
    assert answer.out.splitlines()[0] == "Attempt 1"
    assert answer.out.splitlines()[1].endswith("WARNING shop: \\x1b[31mhello")
    (attempt,) = shell.app("jobs", "logs", job_id, "-o", "json").data["attempts"]
    assert attempt["fence"] == 1
    assert shell.app("jobs", "logs", mute).err == "No lines are kept: see `logs` of the task.\n"
    assert shell.app("jobs", "logs", "0" * 32).code == 4


def test_a_history_has_all_attempts_the_first_first(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.fail", "no")
    shell.work()
    shell.app("dead", "retry", job_id)
    shell.work()
    head, first, change, second = shell.app("jobs", "history", job_id).out.splitlines()
    assert head.split() == ["FENCE", "OUTCOME", "ENDED", "TOOK", "WORKER", "ERROR"]
    assert first.split()[:2] == ["1", "dead"]
    assert " changed " in change
    assert "retried by" in change
    assert second.split()[1] == "dead"
    assert "ValueError: no" in second
    data = shell.app("jobs", "history", job_id, "-o", "json").data
    assert [(attempt["fence"], attempt["outcome"]) for attempt in data] == [
        (1, "dead"), (1, "changed"), (2, "dead"),
    ]  # fmt: skip


def test_a_job_without_attempts_has_an_empty_history(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.add", "1")
    answer = shell.app("jobs", "history", job_id)
    assert (answer.code, answer.out) == (0, "")
    assert answer.err.startswith("No attempt has ended yet")
    assert shell.app("jobs", "history", "00" * 16).code == 4


def test_a_tail_prints_attempts_as_they_end(shell: Shell) -> None:
    shell.enqueue("tasks.add", "0")
    shell.work()
    tail = shell.spawn(
        "--app", "tasks:app", "jobs", "tail", "-q", "default", "--task", "tasks.add", "-o", "ndjson"
    )
    try:
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert tail.stderr.readline() == "Printing attempts as they end; press Ctrl-C to stop.\n"
        shell.enqueue("tasks.echo", "1")
        job_id = shell.enqueue("tasks.add", "1")
        shell.work()
        entry = json.loads(tail.stdout.readline())
        assert (entry["id"], entry["task"], entry["outcome"]) == (job_id, "tasks.add", "done")
        tail.send_signal(signal.SIGINT)
        assert tail.communicate(timeout=WAIT_S) == ("", "")
        assert tail.returncode == 130
    finally:
        tail.kill()
        tail.communicate()


def test_a_tail_is_lines_below_one_head(shell: Shell) -> None:
    tail = shell.spawn("--app", "tasks:app", "--store", "sqlite:///jobs.db", "jobs", "tail")
    try:
        assert tail.stdout is not None
        assert tail.stderr is not None
        tail.stderr.readline()
        ids = [shell.enqueue("tasks.add", "1") for _ in range(2)]
        shell.work()
        head, *lines = (tail.stdout.readline().split() for _ in range(3))
        assert head == ["ENDED", "OUTCOME", "TOOK", "QUEUE", "TASK", "ID", "ERROR"]
        assert sorted(line[5] for line in lines) == sorted(ids)
        assert all(line[0].endswith("Z") and line[1] == "done" for line in lines)
    finally:
        tail.kill()
        tail.communicate()


def test_a_tail_of_no_queue_ends_at_once(shell: Shell) -> None:
    assert shell.app("jobs", "tail", "-q", "nothing").code == 4


def test_the_history_of_a_key_and_of_a_header(shell: Shell) -> None:
    # V2, C21
    shell.enqueue("tasks.add", "0")
    refused = shell.app("jobs", "history", "--unique", "acct-7")
    assert refused.code == 2
    assert "has no keys and headers" in refused.err
    assert shell.app("queues", "set", "default", "--history", "all").code == 0
    keyed = shell.enqueue("tasks.add", "1", "--unique", "acct-7", "--header", "trace=a")
    shell.enqueue("tasks.add", "2")
    shell.work()
    for words in (("--unique", "acct-7"), ("--header", "trace=a", "-q", "default")):
        data = shell.app("jobs", "history", *words, "-o", "json").data
        assert [(attempt["id"], attempt["outcome"]) for attempt in data] == [
            (keyed, "enqueued"), (keyed, "done"),
        ]  # fmt: skip
    assert data[0]["headers"] == {"trace": "a"}
    assert shell.app("jobs", "history", "--unique", "nobody").err.startswith("No jobs match")
    wrong: list[list[str]] = [[], [keyed, "--unique", "acct-7"], ["--header", "trace"]]
    for given in wrong:
        assert shell.app("jobs", "history", *given).code == 2
