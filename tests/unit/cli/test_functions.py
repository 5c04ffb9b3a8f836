"""`dueline flows` and `jobs show` of durable functions (W10, V7)."""

from pathlib import Path

import pytest

from tests.harness.shell import Shell

CODE = """
from datetime import timedelta

from dueline import Dueline, DurableContext, Retry

app = Dueline("sqlite:///jobs.db")


def charge(order: str) -> int:
    return len(order)


def refund(amount: int) -> None:
    pass


def ship(order: str) -> None:
    raise ValueError("no address")


@app.durable(retry=Retry(attempts=1))
def checkout(ctx: DurableContext, order: str) -> str:
    ctx.step({first}, order, undo=refund)
    if not ctx.wait_signal("approved", timeout=timedelta(days=3), default=False):
        return "refused"
    ctx.step(ship, order)
    return "shipped"


@app.durable
def nap(ctx: DurableContext) -> None:
    ctx.sleep(timedelta(hours=1))
"""


@pytest.fixture
def functions(shell: Shell) -> Shell:
    """Declare durable functions in the folder."""
    write("charge")
    return shell


def write(first: str, more: str = "", undo: str = ", undo=refund") -> None:
    """Write the application; its function calls this step first.

    A module that is written twice in a second needs another size: Python keeps its bytecode.
    """
    code = CODE.replace("{first}", first).replace(", undo=refund", undo)
    Path("tasks.py").write_text(code + more, encoding="utf-8")


def test_functions_are_listed_beside_workflows_with_their_states(functions: Shell) -> None:
    first = functions.enqueue("tasks.checkout", "o-1")
    second = functions.enqueue("tasks.nap")
    functions.work()
    listed = functions("flows", "list", "-o", "json", "--store", "sqlite:///jobs.db").data
    assert [
        (function["id"], function["kind"], function["name"], function["state"])
        for function in listed
    ] == [
        (second, "function", "tasks.nap", "sleeping"),
        (first, "function", "tasks.checkout", "waiting"),
    ]
    only = functions.app("flows", "list", "--name", "tasks.nap", "-o", "json").data
    assert [function["id"] for function in only] == [second]
    assert functions.app("flows", "list", "--state", "stopped").err.startswith("No workflows match")
    assert "'wating' is not a state" in functions.app("flows", "list", "--state", "wating").err


def test_a_function_is_shown_with_its_calls_and_what_it_waits_for(functions: Shell) -> None:
    job = functions.enqueue("tasks.checkout", "o-1")
    functions.work()
    text = functions.app("flows", "show", job[:12]).out
    assert "It waits for the signal approved since" in text
    assert "1     step    charge    done" in text
    assert "2     signal  approved  waiting" in text
    shown = functions.app("jobs", "show", job, "-o", "json").data
    assert [
        (call["call"], call["kind"], call["name"], call["state"]) for call in shown["calls"]
    ] == [
        ("1", "step", "charge", "done"),
        ("2", "signal", "approved", "waiting"),
    ]


def test_a_signal_of_the_command_line_wakes_a_function(functions: Shell) -> None:
    job = functions.enqueue("tasks.checkout", "o-1")
    functions.work()
    sent = ("flows", "signal", job, "approved", "--value", "true", "--id", "a")
    assert functions.app(*sent).code == 0
    assert functions.app(*sent).code == 0
    assert functions.app("flows", "show", job, "-o", "json").data["unread_signals"] == [
        "approved (1)"
    ]
    functions.work()
    shown = functions.app("jobs", "show", job, "-o", "json").data
    assert shown["state"] == "dead"
    calls = {(call["call"], call["kind"]): call for call in shown["calls"]}
    assert calls["3", "step"]["state"] == "failed"
    assert calls["3", "step"]["error"] == "ValueError: no address"
    assert calls["1", "undo"]["state"] == "done"
    late = functions.app(*sent[:-1], "b")
    assert late.code != 0
    assert "ended" in late.err


def test_a_cancel_of_the_command_line_asks_a_function_to_end(functions: Shell) -> None:
    job = functions.enqueue("tasks.checkout", "o-1")
    functions.work()
    counted = functions.app("flows", "cancel", job, "--dry-run", "-o", "json").data
    assert counted == {"id": job, "matching": 1, "dry_run": True}
    asked = functions.app("flows", "cancel", job, "-o", "json").data
    assert (asked["cancelled"], asked["asked_to_stop"]) == (0, 1)
    functions.work()
    assert functions.app("jobs", "show", job, "-o", "json").data["state"] == "cancelled"
    assert functions.app("flows", "cancel", job, "--step", "1").code != 0


def test_a_stopped_function_is_listed_and_says_what_to_do(functions: Shell) -> None:
    job = functions.enqueue("tasks.checkout", "o-1")
    functions.work()
    write("refund", "# changed\n")
    functions.app("flows", "signal", job, "approved")
    functions.work()
    (listed,) = functions.app("flows", "list", "--state", "stopped", "-o", "json").data
    assert listed["id"] == job
    (row,) = functions.app("jobs", "list", "-o", "json").data
    assert row["state"] == "stopped"
    text = functions.app("flows", "show", job).out
    assert "call 1 was charge, the code now calls refund" in text
    assert "un workers with the code that began it" in text
    assert functions.app("flows", "reset", job, "--to", "0").code == 0
    functions.work()
    shown = functions.app("flows", "show", job, "-o", "json").data
    assert shown["state"] == "done"
    assert [(call["call"], call["name"]) for call in shown["calls"]] == [
        ("1", "refund"),
        ("2", "approved"),
    ]


def test_a_dead_function_is_retried_after_its_records(functions: Shell) -> None:
    write("refund", undo="")
    job = functions.enqueue("tasks.checkout", "o-1")
    functions.app("flows", "signal", job, "approved", "--value", "true")
    functions.work()
    counted = functions.app("flows", "retry", job, "--dry-run", "-o", "json").data
    assert counted == {"id": job, "matching": 1, "dry_run": True}
    assert functions.app("flows", "retry", job, "-o", "json").data["retried"] == 1
    forked = functions.app("flows", "reset", job, "--to", "1", "--as-new", "-o", "json").data
    assert forked["id"] != job
    functions.work()
    states = {
        flow["id"]: flow["state"] for flow in functions.app("flows", "list", "-o", "json").data
    }
    assert states[job] == "dead"
    assert states[forked["id"]] == "waiting"


def test_each_command_that_retries_calls_again_what_failed(functions: Shell) -> None:
    # W15
    write("charge", undo="")
    retries = (
        ("jobs", "retry", "ID"),
        ("jobs", "retry", "--all-matching", "--state", "dead", "--yes"),
        ("dead", "retry", "ID"),
        ("dead", "retry", "--all", "--yes"),
        ("dead", "redrive", "--all", "--rate", "50", "--yes"),
    )
    for size, words in enumerate(retries):
        job = functions.enqueue("tasks.checkout", "o-1")
        functions.app("flows", "signal", job, "approved", "--value", "true")
        functions.work()
        write("charge", f"def ship(order):\n    return {'1' * size}1\n", undo="")
        assert functions.app(*(job if word == "ID" else word for word in words)).code == 0
        functions.work()
        shown = functions.app("flows", "show", job, "-o", "json").data
        assert (shown["state"], len(shown["calls"])) == ("done", 3)
        write("charge", "#" * (size + 1), undo="")


def test_an_unknown_id_is_refused_as_before(functions: Shell) -> None:
    job = functions.app("flows", "show", "0" * 32)
    assert job.code != 0
    assert "workflow" in job.err
