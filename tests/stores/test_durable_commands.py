"""Commands that show and steer durable functions, on each server (W10, W12, W13, W15)."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dueline import Dueline, DurableContext, Job, Retry
from tests.harness.addresses import LONG_ON_CASSANDRA
from tests.harness.programs import wait_for
from tests.harness.shell import Shell


@pytest.fixture
def flows(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Return what runs `dueline flows` on the store; it returns the command's data."""
    shell = Shell(tmp_path, capsys)

    def run(*words: str) -> Any:  # noqa: ANN401  (JSON)
        answer = shell("flows", *words, "-o", "json", "--store", url)
        assert answer.code == 0, answer
        return answer.data

    return run


def explained(job: Job[Any], reason: str) -> None:
    """Wait until a function waits for something."""
    wait_for(lambda: job.explain().reason == reason, "the function waits")


@pytest.mark.parametrize("url", LONG_ON_CASSANDRA, indirect=True)
def test_commands_show_and_steer_functions_without_their_code(
    url: str, flows: Callable[..., Any]
) -> None:
    """Let functions call, wait, die and end, and read and change them by commands."""
    fails = [True]

    def ship() -> str:
        if fails:
            raise ValueError("no address")
        return "shipped"

    with closing(Dueline(url)) as app:

        @app.task(name="reserve", queue="stock")
        def reserve(number: int) -> int:
            return number * 10

        @app.durable(name="order", retry=Retry(attempts=1))
        def order(ctx: DurableContext) -> list[Any]:
            reserved = ctx.gather([reserve.call(number) for number in (1, 2, 3)], limit=2)
            single = ctx.call(reserve, 4)
            approved = ctx.wait_signal("approved", type=int)
            return [reserved, single, approved, ctx.step(ship, name="ship")]

        def shown(job_id: str) -> tuple[str, list[tuple[str, str, str]]]:
            data = flows("show", job_id)
            calls = [(each["call"], each["name"], each["state"]) for each in data["calls"]]
            return data["state"], calls

        with app.worker(queues=["default"]):
            job, other = order.enqueue(), order.enqueue()
            explained(job, "calls")
            explained(other, "calls")
            assert "It waits for the ends of 3 calls, in call 1 of order" in str(job.explain())
            assert shown(job.id) == ("waiting", [("1", "3 calls", "running")])
            with app.worker(queues=["stock"]):
                explained(job, "signal")
                explained(other, "signal")
            assert {each["state"] for each in flows("list", "--name", "order")} == {"waiting"}
            assert flows("signal", job.id, "approved", "--value", "7") is not None
            wait_for(lambda: job.status == "dead", "the functions are dead")
            state, calls = shown(job.id)
            assert (state, calls[-1][1:]) == ("dead", ("ship", "failed"))
            fails.clear()
            assert flows("retry", job.id)["retried"] == 1
            assert job.result(timeout=60) == [[10, 20, 30], 40, 7, "shipped"]
            assert shown(job.id)[0] == "done"
            assert flows("reset", other.id, "--to", "0")["id"] == other.id
            explained(other, "calls")
            assert flows("cancel", other.id)["asked_to_stop"] == 1
            wait_for(lambda: other.status == "cancelled", "the function is cancelled")
        states = {each["id"]: each["state"] for each in flows("list")}
        assert states == {job.id: "done", other.id: "cancelled"}
