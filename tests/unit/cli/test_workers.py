"""`dueline workers`."""

import pytest

from dueline import Dueline
from dueline.api.raw_queue import RawQueue
from tests.harness.shell import STORE, WAIT_S, Shell


@pytest.mark.slow
def test_a_worker_is_quieted_resumed_pinged_and_stopped(shell: Shell) -> None:
    # O13: in a process of its own
    with shell.worker() as process:
        (worker,) = shell("workers", "list", "-o", "json", "--store", STORE).data
        name = worker["worker"]
        assert shell.app("workers", "stop", "--all").code == 5  # without a yes
        quiet = shell.app("workers", "quiet", name[:-3], "--yes", "-o", "json")
        assert [(worker["worker"], worker["answer"]) for worker in quiet.data] == [(name, "quiet")]
        job_id = shell.enqueue("tasks.add", "1")
        (pinged,) = shell.app("workers", "ping", "--all", "-o", "json").data
        assert (pinged["answer"], pinged["running"], pinged["jobs"]) == ("quiet", 0, [])
        assert pinged["memory_mib"] > 1
        assert shell.ids() == [job_id]
        assert "claiming" in shell.app("workers", "resume", "--all").out
        assert "stopping" in shell.app("workers", "stop", "--all", "--yes").out
        assert process.wait(WAIT_S) == 143
        assert shell.app("workers", "list", "-o", "json").data == []


def test_who_is_meant_must_be_said(shell: Shell) -> None:
    assert shell.app("workers", "stop").code == 2
    assert shell.app("workers", "stop", "x", "--all").code == 2
    assert shell.app("workers", "ping", "x").code == 4
    answer = shell.app("workers", "ping", "--all")
    assert (answer.code, answer.err) == (0, "No live workers.\n")


def test_programs_that_claim_by_hand_are_not_asked(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1")
    app = Dueline(STORE)
    assert RawQueue(app, "default").claim(1)
    app.close()
    (client,) = shell("workers", "list", "-o", "json", "--store", STORE).data
    answer = shell.app("workers", "ping", "--all")
    assert (answer.code, answer.err) == (0, "No live workers.\n")
    answer = shell.app("workers", "ping", client["worker"])
    assert answer.code == 2
    assert "is a program that claims by hand: it reads no requests" in answer.err


def test_the_wanted_workers_are_a_number(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1")
    wanted = ("workers", "wanted", "--slots", "2", "-q")
    assert shell.app(*wanted, "default", "--target", "p99<500ms").out == "1\n"
    answer = shell.app(*wanted, "default", "--target", "quickly")
    assert answer.code == 2
    assert "'quickly' is not a target." in answer.err
    assert shell.app(*wanted, "nothing").code == 4
