"""The HTTP API of durable functions, on memory and SQLite (V8, W10, W13, W15)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline.web import api
from tests.harness.addresses import address
from tests.harness.durable_shop import SECRET, DurableShop
from tests.harness.http_api import Program
from tests.harness.programs import WAIT_S


@pytest.fixture(params=["memory", "sqlite"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DurableShop]:
    """Open an application on each kind of store."""
    with address(request.param, tmp_path) as url:
        made = DurableShop(url)
        yield made
        made.app.close()


@pytest.fixture
def program(shop: DurableShop) -> Program:
    """Use the API as an operator."""
    return Program(api(shop.app, role="operator"))


def test_a_function_is_started_followed_and_signalled_by_a_producer(shop: DurableShop) -> None:
    program = Program(api(shop.app, role="producer"))
    new = {"task": "shop.approve", "args": ["7"], "kwargs": {"password": SECRET}}
    job = program.call("POST", "/jobs", new, status=201)["id"]
    path = f"/functions/{job}"
    shop.work()
    state = program.call("GET", path)
    assert (state["task"], state["state"], state["last_step"]) == ("shop.approve", "waiting", 5)
    assert state["value"] == {"needs": "an editor", "token": "[redacted]"}
    assert "It waits for the signal approved" in state["sentence"]
    body = {"name": "approved", "value": {"by": "ann"}}
    for _ in range(2):
        assert program.call("POST", f"{path}/signals", body, Idempotency_Key="k1") == {"done": True}
    assert program.call("GET", path)["unread_signals"] == {"approved": 1}
    shop.work()
    assert shop.app.job(job).result(timeout=WAIT_S)["answer"] == {"by": "ann"}
    assert program.call("GET", path)["state"] == "done"
    program.call("POST", f"{path}/signals", body, status=404)
    for what in ("reset", "fork"):
        program.call("POST", f"{path}/{what}", {}, status=403)
    assert shop.app.admin.actions() == []


def test_steps_are_listed_in_pages_without_secrets(shop: DurableShop, program: Program) -> None:
    approve, nap, many = (
        shop.begun(shop.approve, "7"), shop.begun(shop.nap, long=True), shop.begun(shop.many, 30),
    )  # fmt: skip
    steps = program.call("GET", f"/functions/{approve.id}/steps")["steps"]
    assert [(step["position"], step["kind"], step["state"]) for step in steps] == [
        (1, "step", "done"), (2, "step", "done"), (3, "gather", "done"), (4, "gathered", "done"),
        (5, "signal", "waiting"),
    ]  # fmt: skip
    assert (steps[0]["value"], steps[0]["attempts"]) == ("booked 7", 1)
    assert steps[0]["began"] <= steps[0]["at"]
    assert "[redacted]" in steps[1]["value"].values()
    assert steps[4]["until"] > steps[4]["began"]
    large = program.call("GET", f"/functions/{nap.id}/steps")["steps"][0]
    assert (large["value"], large["hidden"]) == (None, "large")
    assert program.call("GET", f"/functions/{nap.id}/steps/1")["value"] == "large" * 4_000
    read, after = [], 0
    while after is not None:
        page = program.call("GET", f"/functions/{many.id}/steps?after={after}&limit=7")
        read += [step["position"] for step in page["steps"]]
        after = page["next"]
    assert read == list(range(1, 32))
    for position in ("99", "0", "x", "9" * 40):
        wrong = program.call("GET", f"/functions/{nap.id}/steps/{position}", status=404)
        assert f"has no call {position}." in wrong["detail"]
    assert program.call("GET", "/functions?state=stopped")["functions"] == []
    assert "wating" in program.call("GET", "/functions?state=wating", status=422)["detail"]
    page = program.call("GET", "/functions?limit=2")
    assert [one["task"] for one in page["functions"]] == ["shop.many", "shop.nap"]
    assert [one["awaits"] for one in page["functions"]] == ["go", ""]
    (last,) = program.call("GET", f"/functions?cursor={page['next']}")["functions"]
    assert last["id"] == approve.id
    program.call("GET", "/functions/" + shop.app.unchecked("plain").enqueue().id, status=404)


def test_values_of_another_codec_are_hidden(shop: DurableShop, program: Program) -> None:
    job = shop.begun(shop.sealed)
    (step, _) = program.call("GET", f"/functions/{job.id}/steps")["steps"]
    assert step["value"] is None
    assert "encrypted or in another codec" in step["hidden"]
    program.call("POST", f"/functions/{job.id}/signals", {"name": "go", "value": "x"})
    shop.work()
    assert job.result(timeout=WAIT_S) == "x"


def test_operators_reset_and_fork(shop: DurableShop, program: Program) -> None:
    stopped, waiting = shop.stopped(), shop.begun(shop.approve, "7")
    path = f"/functions/{stopped.id}"
    state = program.call("GET", path)
    assert (state["state"], state["stopped"]) == (
        "stopped", "call 1 was one, the code now calls two",
    )  # fmt: skip
    assert program.call("POST", f"{path}/reset", {"to": 0}) == {"done": True}
    shop.work()
    assert stopped.result(timeout=WAIT_S) == "x"
    program.call("POST", f"{path}/reset", {"to": 0}, status=404)
    fork = program.call("POST", f"/functions/{waiting.id}/fork", {"to": 2}, status=201)["id"]
    again = f"/functions/{waiting.id}/fork", {"to": 2}
    keyed = program.call("POST", *again, status=201, Idempotency_Key="a")["id"]
    assert program.call("POST", *again, status=201, Idempotency_Key="a")["id"] == keyed != fork
    program.call("POST", again[0], {"to": 1}, status=422, Idempotency_Key="a")
    program.call("POST", again[0], {"to": 9}, status=422, Idempotency_Key="b")
    other = program.call("POST", *again, status=201, Idempotency_Key="b")["id"]
    assert len({fork, keyed, other}) == 3
    shop.work()
    assert program.call("GET", f"/functions/{fork}")["state"] == "waiting"
    for wrong, status in [({"to": 9}, 422), ({"to": -1}, 422), ({"to": "x"}, 422), ({"x": 1}, 422)]:
        program.call("POST", f"/functions/{waiting.id}/reset", wrong, status=status)
        program.call("POST", f"/functions/{waiting.id}/fork", wrong, status=status)
    for wrong in ({}, {"name": ""}, {"name": "a/b"}, {"name": "go", "x": 1}):
        program.call("POST", f"/functions/{waiting.id}/signals", wrong, status=422)
    bad = program.send(
        "POST", f"/functions/{waiting.id}/signals", content=b"{yes}",
        headers={"content-type": "application/json"},
    )  # fmt: skip
    assert bad.status_code == 400
    program.call("POST", f"/functions/{waiting.id}/signals", {"name": "approved"})
    done = [one for one in shop.app.admin.actions() if one.result in ("done", fork)]
    assert [(one.what, one.target) for one in done] == [
        ("signal approved", waiting.id),
        ("fork function after call 2", waiting.id),
        ("reset function after call 0", stopped.id),
    ]


def test_readers_change_nothing(shop: DurableShop) -> None:
    job = shop.begun(shop.approve, "7")
    reader = Program(api(shop.app, role="reader"))
    assert reader.call("GET", f"/functions/{job.id}")["state"] == "waiting"
    reader.call("POST", f"/functions/{job.id}/signals", {"name": "approved"}, status=403)
    for what in ("reset", "fork"):
        reader.call("POST", f"/functions/{job.id}/{what}", {}, status=403)
