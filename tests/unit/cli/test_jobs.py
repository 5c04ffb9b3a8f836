"""`dueline jobs`."""

import json
import zlib

import pytest

from dueline import Dueline
from dueline.jobs.queue import EnqueueRequest
from tests.harness.shell import Shell

NOBODY = "01a1fd7a411675ef94f3ce7759609f40"


def test_a_list_is_a_table_with_whole_ids(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.sleep", "1", "--after", "10m")
    answer = shell.app("jobs", "list")
    head, line = answer.out.splitlines()
    assert head.split() == ["ID", "STATE", "AT", "PRIO", "QUEUE", "TASK"]
    assert line.split()[:2] == [job_id, "scheduled"]
    assert line.split()[-3:] == ["3", "slow", "tasks.sleep"]
    assert answer.err == ""


def test_a_list_is_one_document_or_a_line_a_job(shell: Shell) -> None:
    ids = [shell.enqueue("tasks.add", "1") for _ in range(3)]
    document = json.loads(shell.app("-o", "json", "jobs", "list", "--limit", "2").out)
    assert [job["id"] for job in document["data"]] == ids[:2]
    meta = document["meta"]
    assert (meta["count"], meta["more"], meta["capped"]) == (2, True, False)
    assert meta["command"] == "jobs list"
    lines = shell.app("jobs", "list", "--output=ndjson").out.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ids


def test_a_list_says_that_it_is_empty_or_not_all_on_stderr(shell: Shell) -> None:
    answer = shell.app("jobs", "list")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == (
        "No waiting or running jobs match. For ended ones use --state done, cancelled, expired or "
        "lost; for dead-letter jobs `dueline dead list`.\n"
    )
    assert shell.app("jobs", "list", "--state", "done").err == "No jobs match.\n"
    assert shell.app("jobs", "list", "state:ready").err == "No jobs match.\n"
    for _ in range(2):
        shell.enqueue("tasks.add", "1")
    assert "raise --limit to see more" in shell.app("jobs", "list", "--limit", "1").err


def test_jobs_are_listed_by_state_queue_task_and_tenant(shell: Shell) -> None:
    ready = shell.enqueue("tasks.add", "1")
    later = shell.enqueue("tasks.add", "1", "--after", "1h", "--tenant", "acme")
    slow = shell.enqueue("tasks.sleep", "0")
    assert set(shell.ids("--state", "ready")) == {ready, slow}
    assert shell.ids("--state", "scheduled") == shell.ids("--tenant", "acme") == [later]
    assert shell.ids("--queue", "slow") == shell.ids("--task", "tasks.sleep") == [slow]
    shell.work()
    assert set(shell.ids("--state", "done")) == {ready, slow}
    answer = shell.app("jobs", "list", "--state", "done", "--queue", "slow")
    assert answer.out.splitlines()[0].split() == ["ID", "STATE", "ENDED", "TOOK", "QUEUE", "TASK"]


def test_the_queue_of_a_list_has_a_short_option(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.add", "1", "--queue", "mail")
    shell.enqueue("tasks.add", "2")
    for command in (("jobs", "list"), ("jobs", "peek")):
        jobs = shell.app(*command, "-q", "mail", "-o", "json").data
        assert [job["id"] for job in jobs] == [job_id]


def test_jobs_are_listed_by_the_words_of_a_filter(shell: Shell) -> None:
    later = shell.enqueue("tasks.add", "1", "--after", "1h", "--tenant", "acme")
    urgent = shell.enqueue("tasks.add", "1", "--priority", "5")
    assert shell.ids("tenant:acme", "task:tasks.*") == [later]
    assert shell.ids("priority>3") == [urgent]
    assert shell.ids("priority>3", "--state", "scheduled") == []
    answer = shell.app("jobs", "list", "colour:red")
    assert answer.code == 2
    assert "is not a word of a filter" in answer.err


def test_a_waiting_job_is_shown_whole(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.add", "1", "b=5")
    text = shell.app("jobs", "show", job_id).out
    assert f"id         {job_id}\n" in text
    assert "arguments  [1,5]" in text or 'arguments  {"args"' in text
    assert shell.app("jobs", "show", job_id, "-o", "json").data["state"] == "ready"


def test_arguments_in_other_codecs_are_shown_or_said_to_be_closed(shell: Shell) -> None:
    app = Dueline("sqlite:///jobs.db")
    bodies = {1: b"\x91\xc4\x01a", 2: zlib.compress(b'["abc"]'), 64: b"sealed", 3: b"xx"}
    ids = {
        codec: app.queues.enqueue(EnqueueRequest("default", "t", codec, [body]))[0].id.hex()
        for codec, body in bodies.items()
    }
    app.close()
    shown = {
        codec: shell.app("jobs", "show", job_id, "-o", "json").data["arguments"]
        for codec, job_id in ids.items()
    }
    assert (shown[1], shown[2]) == (["YQ=="], ["abc"])
    assert shown[64].startswith("(6 bytes, not shown: The arguments are in the codec 64")
    assert shown[3].startswith("(2 bytes, not shown: The arguments cannot be decompress")


def test_an_ended_job_shows_its_result_and_attempts(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.add", "1")
    shell.work()
    text = shell.app("jobs", "show", job_id).out
    assert "result    3\n" in text
    assert "FENCE  OUTCOME" in text
    data = shell.app("jobs", "show", job_id, "-o", "json").data
    assert (data["state"], data["result"]) == ("done", 3)
    (attempt,) = data["attempts"]
    assert (attempt["fence"], attempt["outcome"]) == (1, "done")
    assert attempt["took_s"] >= 0


def test_a_job_of_which_only_the_history_is_left_is_shown(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.add", "1", "--queue", "mute")
    assert shell.app("worker", "--burst", "-q", "mute").code == 0
    data = shell.app("jobs", "show", job_id, "-o", "json").data
    assert (data["state"], data["task"]) == ("done", "tasks.add")
    assert "result" not in data
    assert shell.app("dead", "show", job_id).why == f"The job {job_id} is done, not dead."


def test_explain_says_the_reason_in_a_sentence(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.add", "1")
    answer = shell.app("jobs", "explain", job_id)
    assert answer.out == (
        "It is ready, but no live worker serves the queue default (`dueline worker -q default`).\n"
    )
    data = shell.app("jobs", "explain", job_id, "-o", "json").data
    assert (data["reason"], data["facts"]["workers"]) == ("no worker", 0)
    later = shell.enqueue("tasks.add", "1", "--after", "1h")
    facts = shell.app("jobs", "explain", later, "-o", "json").data["facts"]
    assert facts["due"].endswith("Z")


def test_a_waiting_job_is_cancelled(shell: Shell) -> None:
    ids = [shell.enqueue("tasks.add", "1") for _ in range(2)]
    answer = shell.app("jobs", "cancel", *ids, "-o", "json")
    assert [job["change"] for job in answer.data] == ["cancelled", "cancelled"]
    assert shell.ids() == []
    assert "It has been cancelled since" in shell.app("jobs", "explain", ids[0]).out


def test_a_scheduled_job_is_run_at_once(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.add", "1", "--after", "1h")
    assert shell.app("jobs", "retry", job_id).code == 0
    assert shell.ids("--state", "ready") == [job_id]


def test_a_running_job_is_not_retried(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.add", "1")
    shell.start(job_id)
    answer = shell.app("jobs", "retry", job_id)
    assert (answer.code, answer.out) == (5, "")
    assert answer.why == f"The job {job_id} is running and cannot be retried."
    assert shell.ids("--state", "running") == [job_id]


def test_a_running_job_is_asked_to_stop(shell: Shell) -> None:
    # C19
    job_id = shell.enqueue("tasks.add", "1")
    shell.start(job_id)
    answer = shell.app("jobs", "cancel", job_id, "-o", "json")
    assert (answer.code, answer.data) == (0, [{"id": job_id, "change": "asked to stop"}])
    assert shell.ids("--state", "running") == [job_id]


def test_the_progress_of_a_job_is_shown(shell: Shell) -> None:
    # C18
    job_id = shell.enqueue("tasks.count", "3")
    assert shell.app("worker", "--burst").code == 0
    shown = shell.app("jobs", "show", job_id, "-o", "json").data["progress"]
    assert {name: shown[name] for name in ("done", "total", "percent", "note")} == {
        "done": 3,
        "total": 4,
        "percent": 75.0,
        "note": "three",
    }
    lines = shell.app("jobs", "show", job_id).out.splitlines()
    assert any(
        line.startswith("progress") and "done: 3, total: 4, percent: 75.0, note: three" in line
        for line in lines
    )


def test_one_that_refuses_does_not_keep_the_others(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.add", "1")
    answer = shell.app("jobs", "cancel", NOBODY, job_id)
    assert answer.code == 4
    assert f"No job {NOBODY} is known" in answer.why
    assert job_id in answer.out
    assert shell.ids() == []


@pytest.mark.parametrize("verb", ["show", "explain", "cancel", "retry"])
def test_an_unknown_id_is_told(shell: Shell, verb: str) -> None:
    answer = shell.app("jobs", verb, NOBODY)
    assert (answer.code, answer.out) == (4, "")
    assert answer.why == f"No job {NOBODY} is known."


@pytest.mark.parametrize("verb", ["show", "explain", "cancel", "retry"])
def test_what_is_no_id_is_told(shell: Shell, verb: str) -> None:
    answer = shell.app("jobs", verb, "12")
    assert answer.code == 2
    assert answer.why == "'12' is not a job id."


def test_a_queue_that_is_not_there_is_told(shell: Shell) -> None:
    answer = shell.app("jobs", "list", "--queue", "nothing")
    assert answer.code == 4
    assert answer.why == "There is no queue nothing."
    answer = shell.app("jobs", "list", "--queue", "No!")
    assert answer.code == 2


def test_a_wrong_state_or_limit_is_told(shell: Shell) -> None:
    assert shell.app("jobs", "list", "--state", "happy").code == 2
    assert "--limit" in shell.app("jobs", "list", "--limit", "0").why


def test_arguments_that_another_program_wrote_badly_are_shown(shell: Shell) -> None:
    app = Dueline("sqlite:///jobs.db")
    job_id = app.queues.enqueue(EnqueueRequest("default", "x", 0, [b"[1"]))[0].id.hex()
    app.close()
    assert shell.app("jobs", "show", job_id, "-o", "json").data["arguments"] == "[1"


def test_waiting_jobs_are_rescheduled(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.add", "1", "--after", "1d")
    before = shell.app("jobs", "show", job_id, "-o", "json").data
    answer = shell.app("jobs", "reschedule", job_id, "--after", "10m", "-o", "json")
    assert answer.data == [{"id": job_id, "change": "rescheduled"}]
    after = shell.app("jobs", "show", job_id, "-o", "json").data
    assert after["at"] < before["at"]
    assert after["due"] == after["at"]
    shell.app("jobs", "reschedule", job_id, "--due", "2026-01-01T00:00:00Z")
    shell.work()
    assert shell.app("jobs", "reschedule", job_id, "--after", "10m").code == 5


@pytest.mark.parametrize(
    "words", [[], ["--after", "1s", "--due", "2030-01-01T00:00:00Z"], ["--due", "2030-01-01"]]
)
def test_another_time_is_one_of_two(shell: Shell, words: list[str]) -> None:
    job_id = shell.enqueue("tasks.add", "1", "--after", "1d")
    assert shell.app("jobs", "reschedule", job_id, *words).code == 2


def test_waiting_jobs_get_another_priority(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.add", "1", "--after", "1d")
    assert shell.app("jobs", "change", job_id, "--priority", "9").code == 0
    assert shell.app("jobs", "show", job_id, "-o", "json").data["priority"] == 9


def test_a_job_is_found_by_its_unique_key(shell: Shell) -> None:
    # C23
    job_id = shell.enqueue("tasks.add", "1", "--unique", "one")
    assert shell.app("jobs", "find", "one", "-o", "json").data["id"] == job_id
    shell.work()
    gone = shell.app("jobs", "find", "one")
    assert gone.code == 4
    assert "No waiting or running job of default has the unique key 'one'" in gone.err


def test_jobs_are_listed_by_time_across_queues_priorities_and_states(shell: Shell) -> None:
    # V3
    ids = [
        shell.enqueue("tasks.add", "1", "--after", after, "--priority", priority, "--queue", queue)
        for after, priority, queue in (
            ("3h", "9", "mail"),
            ("1h", "0", "default"),
            ("2h", "-5", "mail"),
            ("4h", "0", "default"),
        )
    ]
    shell.app("jobs", "reschedule", ids[1], "--after", "5h")
    listed = [
        json.loads(line) for line in shell.app("jobs", "list", "-o", "ndjson").out.splitlines()
    ]
    assert [job["id"] for job in listed] == [ids[2], ids[0], ids[3], ids[1]]


def test_changing_commands_take_the_first_digits_of_ids(shell: Shell) -> None:
    # the table of the first hour
    job_id = shell.enqueue("tasks.add", "1", "--after", "1h")
    assert shell.app("jobs", "change", job_id[:20], "--priority", "7").code == 0
    assert shell.app("jobs", "show", job_id[:20], "-o", "json").data["priority"] == 7
    other = shell.enqueue("tasks.add", "2", "--after", "1h")
    both = shell.app("jobs", "cancel", job_id[:4])
    assert both.code == 2
    assert job_id in both.err
    assert other in both.err
    assert shell.app("jobs", "cancel", job_id[:20]).code == 0
    dead = shell.enqueue("tasks.fail", "no")
    shell.work()
    assert shell.app("dead", "retry", dead[:20]).code == 0


def test_expired_jobs_are_listed_whether_a_worker_has_ended_them_or_not(shell: Shell) -> None:
    # C15, V1
    ended = shell.enqueue("tasks.add", "1", "--expires", "1ms")
    shell.work()
    waiting = shell.enqueue("tasks.add", "2", "--expires", "1ms")
    listed = shell.app("jobs", "list", "--state", "expired", "-o", "json").data
    assert [(job["id"], job["state"]) for job in listed] == [
        (waiting, "expired"), (ended, "expired"),
    ]  # fmt: skip
    assert shell.ids("--state", "expired", "--limit", "1") == [waiting]


def test_a_word_and_an_option_of_one_name_are_refused(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1")
    both = shell.app("jobs", "list", "--state", "ready", "state:dead")
    assert both.code == 2
    assert "An option and the word state: exclude each other" in both.err


def test_expired_jobs_that_wait_are_cancelled_together(shell: Shell) -> None:
    # C15, C19: as each is by its id
    waiting = shell.enqueue("tasks.add", "2", "--expires", "1ms")
    other = shell.enqueue("tasks.add", "3")
    bulk = ("--all-matching", "--state", "expired", "--yes")
    assert shell.app("jobs", "retry", *bulk).code == 2
    assert shell.app("jobs", "cancel", *bulk).code == 0
    assert shell.ids() == [other]
    assert shell.app("jobs", "show", waiting, "-o", "json").data["state"] == "cancelled"
    assert shell.ids("--state", "cancelled") == [waiting]


def test_a_dead_job_is_settled(shell: Shell) -> None:
    job_id = shell.enqueue("tasks.fail", '"no"')
    shell.work()
    assert shell.ids("--state", "dead") == [job_id]
    assert shell.ids("--state", "uncertain") == []
    assert "not JSON" in shell.app("jobs", "settle", job_id, "--value", "{").err
    assert shell.app("jobs", "settle", job_id, "--value", "[1]").out.split()[-2:] == [
        job_id, "settled",
    ]  # fmt: skip
    assert json.loads(shell.app("-o", "json", "jobs", "show", job_id).out)["data"]["result"] == [1]
