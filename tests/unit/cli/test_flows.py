"""`dueline flows` (W7)."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from dueline import group, pipeline, wait_for
from tests.harness.shell import Shell


def start(build: Any, name: str = "") -> str:  # noqa: ANN401
    """Start a workflow of the folder's tasks; answer its id."""
    sys.modules.pop("tasks", None)
    importlib.invalidate_caches()
    sys.path.insert(0, str(Path.cwd()))  # a copy, as the shell has set it
    tasks: Any = importlib.import_module("tasks")
    flow = tasks.app.start(build(tasks), name=name)
    tasks.app.close()
    return str(flow.id)


def sums(tasks: Any) -> Any:  # noqa: ANN401
    return pipeline(group(tasks.add.step(n) for n in range(8)), tasks.echo.step())


def failing(tasks: Any) -> Any:  # noqa: ANN401
    return pipeline(group(tasks.add.step(1), tasks.fail.step("no")), tasks.echo.step("x"))


def waiting(tasks: Any) -> Any:  # noqa: ANN401
    return pipeline(tasks.add.step(1), wait_for("approved"), tasks.echo.step())


def lines(shell: Shell, *words: str) -> list[str]:
    """Draw a workflow; answer the lines of its tree, without instants."""
    text = shell.app("flows", "show", *words).out
    return [line.split(" ago")[0].rstrip() for line in text.partition("STEP")[2].splitlines()[1:]]


def test_workflows_are_listed_the_newest_first(shell: Shell) -> None:
    # V7
    assert shell.app("flows", "list").err.startswith("No workflows.")
    first, second = start(sums, "first"), start(failing)
    head, *rows = shell.app("flows", "list").out.splitlines()
    assert head.split() == ["ID", "NAME", "STATE", "STEPS", "LEFT", "STARTED"]
    assert [row.split()[:5] for row in rows] == [
        [second, "running", "3", "3", rows[0].split()[4]],
        [first, "first", "running", "9", "9"],
    ]
    shell.work()
    listed = shell.app("flows", "list", "-o", "json").data
    assert [(flow["id"], flow["state"], flow["left"]) for flow in listed] == [
        (second, "failed", 1),
        (first, "done", 0),
    ]
    cut = shell.app("flows", "list", "--limit", "1", "-o", "json")
    assert [flow["id"] for flow in cut.data] == [second]
    assert "raise --limit" in cut.err


def test_a_workflow_is_drawn_as_the_tree_of_its_parts(shell: Shell) -> None:
    flow = start(sums, "numbers")
    whole, side, add, echo = (" ".join(line.split()) for line in lines(shell, flow))
    assert (whole, side) == ("pipeline", "group")
    assert add.startswith("0-7 8 x tasks.add 8 ready")
    assert echo == "8 tasks.echo waiting for 8 of 8 steps, the first is step 0 (tasks.add)"
    shell.work()
    text = shell.app("flows", "show", flow).out
    for shown in (
        "name     numbers",
        "state    done",
        "done     9",
        "result   [[2,3,4,5,6,7,8,9],{}]",
    ):
        assert shown in text
    assert "took" in text
    assert "\n      pipeline" in text
    assert "\n        group" in text
    assert "\n0-7       8 x tasks.add  8 done" in text
    assert "\n8       tasks.echo       done" in text
    assert len(lines(shell, flow, "--all")) == 2 + 9


def test_many_parts_that_are_alike_are_one_line_each(shell: Shell) -> None:
    def parts(tasks: Any) -> Any:  # noqa: ANN401
        pairs = (pipeline(tasks.add.step(n), tasks.fail.step()) for n in range(5))
        return pipeline(group(pairs, failures="collect"), group(), on_failure=tasks.echo.step())

    flow = start(parts)
    shell.work()
    wanted = [
        "pipeline",
        "group failures=collect",
        "5 x pipeline",
        "0..8 5 x tasks.add 5 done",
        "1..9 5 x tasks.fail 5 dead",
        "group",
        "10 on failure: tasks.echo cancelled",
    ]
    drawn = [" ".join(line.split()) for line in lines(shell, flow)]
    assert [line[: len(text)] for line, text in zip(drawn, wanted, strict=True)] == wanted


def test_json_has_every_step_with_what_it_needs(shell: Shell) -> None:
    flow = start(failing)
    shell.work()
    data = shell.app("flows", "show", flow, "-o", "json").data
    assert (data["state"], data["count"], data["left"]) == ("failed", 3, 1)
    assert data["why"] == "The step 1 (tasks.fail) is dead: ValueError: no."
    assert [(step["step"], step["state"], step["needs"]) for step in data["steps"]] == [
        (0, "done", []),
        (1, "dead", []),
        (2, "held", [0, 1]),
    ]
    assert data["steps"][1]["why"] == "ValueError: no"
    job = shell.app("jobs", "show", data["steps"][1]["job"], "-o", "json").data
    assert (job["state"], job["task"]) == ("dead", "tasks.fail")
    assert (job["workflow"], job["step"]) == (flow, 1)


def test_a_group_that_is_cancelled_is_drawn_with_its_list(shell: Shell) -> None:
    flow = start(lambda tasks: group(tasks.add.step(1), tasks.fail.step("no"), failures="cancel"))
    drawn = [" ".join(line.split()[:6]) for line in lines(shell, flow)]
    assert drawn[0] == "group failures=cancel"
    assert drawn[3] == "2 the list of a group"
    shell.app("flows", "cancel", flow, "--step", "0")
    states = [
        step["state"] for step in shell.app("flows", "show", flow, "-o", "json").data["steps"]
    ]
    assert states == ["cancelled", "ready", "cancelled"]


def test_dead_steps_are_retried_and_a_branch_is_cancelled(shell: Shell) -> None:
    # W11
    flow = start(failing)
    shell.work()
    answer = shell.app("flows", "retry", flow, "--dry-run", "-o", "json").data
    assert answer == {"id": flow, "matching": 1, "dry_run": True}
    assert shell.app("flows", "retry", flow, "--step", "0", "-o", "json").data["retried"] == 0
    assert shell.app("flows", "retry", flow, "-o", "json").data["retried"] == 1
    states = [
        step["state"] for step in shell.app("flows", "show", flow, "-o", "json").data["steps"]
    ]
    assert states == ["done", "ready", "waiting"]
    words = ("flows", "cancel", flow, "--step", "2", "-o", "json")
    assert shell.app(*words, "--dry-run").data["matching"] == 1
    answer = shell.app(*words).data
    assert (answer["cancelled"], answer["asked_to_stop"]) == (1, 0)
    assert shell.app(*words).data["matching"] == 0
    shell.work()
    data = shell.app("flows", "show", flow, "-o", "json").data
    assert [step["state"] for step in data["steps"]] == ["done", "dead", "cancelled"]


def test_a_signal_lets_a_workflow_go_on(shell: Shell) -> None:
    # W8
    flow = start(waiting)
    shell.work()
    assert "wait for approved  waiting" in shell.app("flows", "show", flow).out
    assert shell.app("flows", "signal", flow, "refused").code == 4
    answer = shell.app("flows", "signal", flow, "approved", "--value", "yes")
    assert (answer.code, answer.why[:19]) == (2, "'yes' is not JSON: ")
    value = '{"by":"ann"}'
    answer = shell.app("flows", "signal", flow, "approved", "--value", value, "-o", "json")
    assert answer.data == {"id": flow, "signal": "approved", "value": {"by": "ann"}}
    assert shell.app("flows", "signal", flow, "approved").code == 5
    shell.work()
    data = shell.app("flows", "show", flow, "-o", "json").data
    assert data["result"] == [{"by": "ann"}, {}]


def test_a_step_that_runs_and_one_that_is_tried_again_are_told(shell: Shell) -> None:
    flow = start(lambda tasks: group(tasks.sleep.step(0), tasks.flaky.step()))
    shell.work()
    done, retrying = shell.app("flows", "show", flow, "-o", "json").data["steps"]
    assert (done["state"], retrying["state"]) == ("done", "retrying (attempt 2)")
    assert retrying["why"] == "TimeoutError: busy"
    flow = start(lambda tasks: tasks.add.step(1))
    shell.start(shell.app("flows", "show", flow, "-o", "json").data["steps"][0]["job"])
    assert shell.app("flows", "show", flow, "-o", "json").data["steps"][0]["state"] == "running"


@pytest.mark.parametrize("word", ["show", "cancel", "retry", "signal"])
def test_a_workflow_that_is_not_known_is_told(shell: Shell, word: str) -> None:
    more = ("approved",) if word == "signal" else ()
    answer = shell.app("flows", word, "0" * 32, *more)
    assert answer.code == 4
    assert answer.why.startswith("There is no workflow 000000")
    assert shell.app("flows", word, "nonsense", *more).code == 2
    flow = start(failing)
    if word in ("cancel", "retry"):
        answer = shell.app("flows", word, flow, "--step", "3")
        assert (answer.code, answer.why) == (4, f"The workflow {flow} has no step 3.")


def test_the_first_digits_of_an_id_name_a_workflow(shell: Shell) -> None:
    # the table of the first hour
    flow, other = start(sums), start(sums)
    assert shell.app("flows", "show", flow[:24], "-o", "json").data["id"] == flow
    both = shell.app("flows", "cancel", flow[:4])
    assert (both.code, flow in both.err, other in both.err) == (2, True, True)
    assert shell.app("flows", "show", "00000000").code == 4


def test_a_workflow_is_forked_from_a_step(shell: Shell) -> None:
    # W15
    flow = start(failing)
    shell.app("worker", "--burst")
    assert shell.app("flows", "fork", flow, "--from-step", "9").code == 4
    refused = shell.app("flows", "fork", flow, "--from-step", "0")
    assert "The arguments of step 0 (tasks.add) are not kept" in refused.err
    forked = shell.app("flows", "fork", flow, "--from-step", "1", "-o", "json").data
    assert (forked["forked_from"], forked["from_step"]) == (flow, 1)
    shown = shell.app("flows", "show", forked["id"], "-o", "json").data
    assert (shown["state"], shown["done"], shown["left"]) == ("running", 1, 2)
