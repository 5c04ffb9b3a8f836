"""`dueline enqueue`."""

import json
import os
from datetime import UTC, datetime, timedelta

import pytest

from tests.harness.shell import WAIT_S, Shell


def test_it_prints_the_id_alone(shell: Shell) -> None:
    answer = shell.app("enqueue", "tasks.add", "1")
    assert (answer.code, answer.err) == (0, "")
    assert len(answer.out) == 33
    assert shell.ids() == [answer.out.strip()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "result"),
    [
        (["1"], [1, {}]),
        (['{"a": [1, null]}', "true"], [{"a": [1, None]}, True, {}]),
        (["bare words", "1.5"], ["bare words", 1.5, {}]),
        (["1", "x=2", "y=ann@x.io"], [1, {"x": 2, "y": "ann@x.io"}]),
        (["NaN", "=", "1=2"], ["NaN", "=", "1=2", {}]),
        (["--", "-5", "--store"], [-5, "--store", {}]),
        ([], [{}]),
    ],
)
def test_arguments_are_json_named_or_not_and_else_texts(
    shell: Shell, words: list[str], result: object
) -> None:
    job_id = shell.enqueue("tasks.echo", *words)
    shell.work()
    assert shell.app("jobs", "show", job_id, "-o", "json").data["result"] == result


def test_it_says_when_where_and_for_whom(shell: Shell) -> None:
    due = datetime.now(UTC) + timedelta(days=400)
    job_id = shell.enqueue(
        "tasks.add", "1", "--due", due.isoformat(), "--priority", "-7", "--queue", "other",
        "--tenant", "acme",
    )  # fmt: skip
    (job,) = shell.app("jobs", "list", "-o", "json").data
    assert (job["id"], job["queue"], job["priority"]) == (job_id, "other", -7)
    assert (job["tenant"], job["state"]) == ("acme", "scheduled")
    assert datetime.fromisoformat(job["due"]) == due


def test_after_is_a_length_of_time(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1", "--after", "2h")
    (job,) = shell.app("jobs", "list", "-o", "json").data
    ahead = datetime.fromisoformat(job["due"]) - datetime.now(UTC)
    assert timedelta(minutes=119) < ahead <= timedelta(hours=2)


def test_json_holds_the_id(shell: Shell) -> None:
    document = json.loads(shell.app("enqueue", "tasks.add", "1", "-o", "json").out)
    assert document["data"]["task"] == "tasks.add"
    assert [document["data"]["id"]] == shell.ids()
    assert document["meta"]["command"] == "enqueue"
    assert document["meta"]["store"] == "sqlite:///jobs.db"


def test_waiting_prints_the_result(shell: Shell) -> None:
    worker = shell.spawn("worker", "tasks:app")
    try:
        answer = shell.app("enqueue", "tasks.echo", "ä", "--wait", "--timeout", "120s")
        assert (answer.code, answer.out) == (0, '["ä", {}]\n')
        assert answer.err.startswith("enqueued ")
        answer = shell.app("enqueue", "tasks.add", "1", "--wait", "-o", "ndjson")
        assert json.loads(answer.out)["result"] == 3
        answer = shell.app("enqueue", "tasks.fail", "no luck", "--wait", "-o", "json")
        assert answer.code == 1
        assert answer.data["state"] == "dead"
        assert "the job ended without a result" in answer.err
        assert "is dead: ValueError: no luck" in answer.err
    finally:
        worker.terminate()
        worker.communicate(timeout=WAIT_S)


def test_waiting_ends_when_the_time_runs_out(shell: Shell) -> None:
    answer = shell.app("enqueue", "tasks.add", "1", "--wait", "--timeout", "20ms", "-o", "json")
    assert answer.code == 124
    assert answer.data["state"] == "ready"
    assert shell.ids() == [answer.data["id"]]
    assert "--timeout expired; the job continues" in answer.err


WRONG = [
    (["tasks.add", "x"], 2, "The arguments do not fit tasks.add(a: int, b: int = 2)"),
    (["tasks.add"], 2, "The arguments do not fit tasks.add"),
    (["tasks.add", "1", "2", "3"], 2, "The arguments do not fit tasks.add"),
    (["tasks.add", "1", "c=3"], 2, "unexpected keyword argument 'c'"),
    (["tasks.add", "a=1", "2"], 2, "'2' follows a named one"),
    (["tasks.add", "a=1", "a=2"], 2, "The argument a is passed twice"),
    (["tasks.echo", "[1"], 2, "The argument '[1' is not JSON"),
    (["tasks.echo", os.fsdecode(b"\xff")], 2, "cannot be written as JSON"),
    (["tasks.echo", "x" * 256 * 1024], 2, "262144 are allowed"),
    (["tasks.nothing"], 4, "The app has no task 'tasks.nothing'"),
    (["tasks.add", "1", "--queue", "No!"], 2, "'No!' is not a queue name"),
    (["tasks.add", "1", "--priority", str(2**31)], 2, "must be a signed 32-bit integer"),
    (["tasks.add", "1", "--priority", "high"], 2, "--priority"),
    (["tasks.add", "1", "--tenant", "x" * 300], 2, "must be a name of up to 255"),
    (["tasks.add", "1", "--due", "2027-01-01T00:00:00"], 2, "must be a datetime with a time zone"),
    (["tasks.add", "1", "--due", "tomorrow"], 2, "'tomorrow' is not an ISO 8601 timestamp"),
    (["tasks.add", "1", "--due", "2090-01-01T00:00:00Z"], 2, "more than ten years ahead"),
    (["tasks.add", "1", "--after", "4000d"], 2, "more than ten years ahead"),
    (["tasks.add", "1", "--after", "9999999d"], 2, "is too long"),
    (["tasks.add", "1", "--after", "soon"], 2, "'soon' is not a duration"),
    (["tasks.add", "1", "--after", "9" * 400], 2, "is not a duration"),
    (
        ["tasks.add", "1", "--after", "1s", "--due", "2027-01-01T00:00:00Z"],
        2,
        "`due` and `after` exclude each other",
    ),
    (["tasks.add", "1", "--timeout", "1s"], 2, "--timeout needs --wait"),
    (["tasks.whisper", "--wait"], 2, "The queue mute keeps no results"),
    (["tasks.add", "1", "--bogus"], 2, "No such option: --bogus"),
    ([], 2, "Missing argument 'TASK'"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("words", "code", "why"), WRONG, ids=[str(n) for n in range(len(WRONG))])
def test_a_wrong_call_is_told_in_three_lines_and_writes_nothing(
    shell: Shell, words: list[str], code: int, why: str
) -> None:
    answer = shell.app("enqueue", *words)
    assert answer.code == code
    assert why in answer.why
    assert answer.out == ""
    assert shell.ids() == []


def test_a_task_nearly_named_is_proposed(shell: Shell) -> None:
    assert "try: Did you mean tasks.sleep?" in shell.app("enqueue", "tasks.slep").err


def test_it_says_until_when_and_what_is_unique(shell: Shell) -> None:
    job_id = shell.enqueue(
        "tasks.add", "1", "--expires", "1d", "--window", "5m", "--unique", "a {key}"
    )
    shown = shell.app("jobs", "show", job_id, "-o", "json").data
    assert shown["expires"] > shown["enqueued"]
    assert shown["at"] > shown["due"]
    assert shown["unique"] == "a {key}"
    answer = shell.app("enqueue", "tasks.add", "2", "--unique", "a {key}")
    assert answer.code == 5
    assert job_id in answer.why
    words = ("tasks.add", "2", "--unique", "a {key}", "--mode")
    assert shell.enqueue(*words, "existing") == job_id
    assert shell.enqueue(*words, "replace") != job_id
    assert shell.app("enqueue", "tasks.add", "2", "--mode", "reject").code == 2


def test_jobs_of_an_order_key_wait_for_the_first(shell: Shell) -> None:
    """What a dead one does needs a key (T16)."""
    words = ("tasks.add", "1", "--order-key", "acct {7}", "--dead", "skip")
    first, second = shell.enqueue(*words), shell.enqueue(*words)
    assert first in shell.app("jobs", "explain", second).out
    shown = shell.app("jobs", "list", "-o", "json").data
    assert {job["state"] for job in shown if job["id"] == second} == {"waiting"}
    details = shell.app("jobs", "show", second, "-o", "json").data
    assert (details["order_key"], details["order_first"]) == ("acct {7}", first)
    assert shell.app("enqueue", "tasks.add", "2", "--dead", "skip").code == 2


def test_a_job_starts_after_others(shell: Shell) -> None:
    """Their ids, and what their failure does (W14)."""
    first = shell.enqueue("tasks.add", "1", "--after", "1h")
    other = shell.enqueue("tasks.add", "1")
    job_id = shell.enqueue(
        "tasks.add", "2", "--depends-on", first, "--depends-on", other, "--failures", "skip"
    )
    assert first in shell.app("jobs", "explain", job_id).out
    shown = shell.app("jobs", "list", "-o", "json").data
    assert {job["state"] for job in shown if job["id"] == job_id} == {"waiting"}
    refused = shell.app("enqueue", "tasks.add", "2", "--depends-on", "0" * 32)
    assert refused.code != 0
    assert "no job can wait for it" in refused.err
    assert shell.app("enqueue", "tasks.add", "2", "--failures", "skip").code == 2


def test_without_an_application_the_way_without_its_code_is_named(bare_shell: Shell) -> None:
    answer = bare_shell("enqueue", "tasks.add", "1")
    assert answer.code == 7
    assert answer.err.endswith("Without its code, pass --unchecked.\n")
