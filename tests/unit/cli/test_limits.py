"""`dueline limits`, and what `jobs` says of limits (V7)."""

from collections.abc import Iterator

import pytest

from dueline import Dueline
from dueline.coordination.worker_registry import Presence, announce
from dueline.core.clock import SECOND_US
from dueline.core.ids import Ids
from dueline.core.store import NO_VERSION
from dueline.limits import rate, semaphore
from dueline.limits.rate import Rate
from dueline.limits.semaphore import Hold, Permits, Wait
from dueline.limits.suspension import suspend
from tests.harness.shell import Shell

TASKS = """
from dueline import Dueline

app = Dueline("sqlite:///jobs.db")


@app.task(limits=["host:{host}"])
def fetch(host: str) -> None:
    pass


@app.task
def free() -> None:
    pass
"""


@pytest.fixture
def app(shell: Shell) -> Iterator[Dueline]:
    """Open the store of the shell's folder; its tasks have limits."""
    (shell.folder / "tasks.py").write_text(TASKS, encoding="utf-8")
    app = Dueline("sqlite:///jobs.db")
    yield app
    app.close()


def hold(app: Dueline, limit: str, *, w1: int, w2_waits: int = 0) -> int:
    """Let w1 hold permits, an hour from now, and w2 wait; answer until when."""
    queues = app.queues
    now_us = queues.engine.time.latest_us()
    until_us = now_us + 3600 * SECOND_US
    waiting = {"w2": Wait(w2_waits, 7, now_us, "q", until_us)} if w2_waits else {}
    lapsed = {"w0": Hold(9, now_us - SECOND_US)}
    permits = Permits({"w1": Hold(w1, until_us), **lapsed}, waiting)
    _, version = semaphore.read(queues.engine.store, limit)
    assert semaphore.write(queues.engine.store, limit, permits, expect=version, ids=Ids())
    return until_us


def test_semaphores_that_were_set_and_those_that_jobs_name_are_listed(
    shell: Shell, app: Dueline
) -> None:
    # F1
    answer = shell.app("limits", "list")
    assert (answer.out, "No limit is set" in answer.err) == ("", True)
    shell.enqueue("tasks.free")
    shell.enqueue("tasks.fetch", "a")
    app.semaphore("warehouse", capacity=4)
    hold(app, "warehouse", w1=2)
    hold(app, "host:a", w1=1, w2_waits=5)
    hold(app, "host:b", w1=1, w2_waits=1)
    app.rate("mail", 10, per=2)
    kind = {"kind": "semaphore"}
    by_key = {"capacity": 1, "set": False, "keys": 2, "held": 2, "waiting": 1}
    plain = {"capacity": 4, "set": True, "keys": 1, "held": 2, "waiting": 0}
    assert shell.app("limits", "list", "-o", "json").data == [
        {"limit": "host", **kind, "most": "1 at once", **by_key},
        {"limit": "warehouse", **kind, "most": "4 at once", **plain},
        {
            "limit": "mail", "kind": "rate", "most": "10 in 2s", "set": True,
            "count": 10, "per_s": 2.0, "burst": None,
        },
    ]  # fmt: skip


def test_a_capacity_is_set_and_forgotten(shell: Shell, app: Dueline) -> None:
    data = shell.app("limits", "set", "warehouse", "0", "-o", "json").data
    assert data == {"limit": "warehouse", "kind": "semaphore", "capacity": 0}
    assert semaphore.capacities(app.store) == {"warehouse": 0}
    answer = shell.app("limits", "remove", "warehouse")
    assert answer.code == 0
    assert "warehouse has the default capacity of 1 again" in answer.err
    assert semaphore.capacities(app.store) == {}
    assert shell.app("limits", "remove", "warehouse").code == 4


def test_a_rate_is_set_and_forgotten(shell: Shell, app: Dueline) -> None:
    # F5
    data = shell.app("limits", "set", "mail", "10", "--per", "2s", "-o", "json").data
    assert (data["limit"], data["count"], data["per_s"], data["burst"]) == ("mail", 10, 2.0, None)
    shell.app("limits", "set", "sms", "1", "--per", "1m", "--burst", "3")
    assert rate.rates(app.store)["sms"] == Rate(1, 60 * SECOND_US, 3)
    assert [limit["limit"] for limit in shell.app("limits", "list", "-o", "json").data] == [
        "mail",
        "sms",
    ]
    assert shell.app("limits", "set", "sms", "1", "--burst", "3").code == 2
    assert "limits set NAME N --per 1s" in shell.app("limits", "rate", "sms", "1").why
    for wrong in (("0", "1s"), ("1", "1ms"), ("1", "2d"), ("x", "1s")):
        assert shell.app("limits", "set", "new", wrong[0], "--per", wrong[1]).code == 2, wrong
    assert shell.app("limits", "remove", "sms").code == 0
    assert rate.rates(app.store).keys() == {"mail"}


def test_a_job_tells_when_its_rate_lets_it_start(shell: Shell, app: Dueline) -> None:
    mine = shell.enqueue("tasks.fetch", "a")
    app.rate("host", 1, per=3600)
    now_us = app.queues.engine.time.latest_us()
    meter = rate.after_taking(rate.Meter(), Rate(1, 3600 * SECOND_US), 1, now_us)
    hourly = Rate(1, 3600 * SECOND_US)
    assert rate.write(app.store, "host:a", meter, hourly, expect=NO_VERSION, ids=Ids())
    worker = Presence("w1", ("default",), ("tasks.fetch",), 4, 0, now_us, now_us, 0)
    announce(app.store, worker, version=bytes(16), beat_every_us=60 * SECOND_US)
    data = shell.app("jobs", "explain", mine, "-o", "json").data
    assert (data["reason"], data["facts"]["limit"]) == ("limit", "host:a")
    assert "host:a (1 in 1h) lets the next job start" in data["sentence"]


def test_a_capacity_or_a_name_that_is_wrong_changes_nothing(shell: Shell, app: Dueline) -> None:
    for wrong in (("a", "-1"), ("a", "1000000001"), ("a", "x"), ("A", "1"), ("host:", "1")):
        assert shell.app("limits", "set", *wrong[:1], "--", *wrong[1:]).code == 2, wrong
    assert shell.app("limits", "holders", "A").code == 2
    assert semaphore.capacities(app.store) == {}


def test_keys_have_limits_of_their_own(shell: Shell, app: Dueline) -> None:
    # F13
    assert shell.app("limits", "set", "plan", "2").code == 0
    assert shell.app("limits", "set", "plan:gold", "10").code == 0
    assert "is a semaphore" in shell.app("limits", "set", "plan:gold", "9", "--per", "1s").why
    assert shell.app("limits", "set", "llm", "9", "--per", "1s").code == 0
    assert "is a rate" in shell.app("limits", "set", "llm:a", "9").why
    assert shell.app("limits", "set", "llm:a", "12", "--per", "1s").code == 0
    data = shell.app("limits", "list", "-o", "json").data
    assert {limit["limit"]: limit["most"] for limit in data} == {
        "plan": "2 at once", "plan:gold": "10 at once", "llm": "9 in 1s", "llm:a": "12 in 1s",
    }  # fmt: skip
    hold(app, "plan:gold", w1=3)
    data = shell.app("limits", "holders", "plan:gold", "-o", "json").data
    assert (data["capacity"], data["set"], data["held"]) == (10, True, 3)
    answer = shell.app("limits", "remove", "plan:gold", "-o", "json")
    assert answer.data["capacity"] == 2
    assert "has the limit of plan again: 2" in answer.err


def test_an_adaptive_capacity_is_shown_with_its_bounds(shell: Shell, app: Dueline) -> None:
    # F11
    for wrong in (["--adaptive", "x:9"], ["--adaptive", "5:9"], ["--latency", "1s"]):
        assert shell.app("limits", "set", "api", "4", *wrong).code == 2, wrong
    assert shell.app("limits", "set", "api", "4", "--per", "1s", "--adaptive", "1:9").code == 2
    answer = shell.app(
        "limits", "set", "api", "4", "--adaptive", "1:9", "--latency", "2s", "-o", "json"
    )
    assert (answer.data["least"], answer.data["most"]) == (1, 9)
    (entry,) = shell.app("limits", "list", "-o", "json").data
    assert entry["most"] == "4 at once (from 1 to 9)"
    permits = semaphore.Permits(level=7, freed_us=app.engine.time.latest_us())
    assert semaphore.write(app.store, "api", permits, expect=NO_VERSION, ids=Ids())
    (entry,) = shell.app("limits", "list", "-o", "json").data
    assert entry["most"] == "7 at once (from 1 to 9)"


def test_holders_are_shown_with_those_who_wait(shell: Shell, app: Dueline) -> None:
    answer = shell.app("limits", "holders", "host")
    assert "No permits are held." in answer.err
    for limit in ("host:a", "host:b", "hosts"):
        hold(app, limit, w1=1, w2_waits=3)
    data = shell.app("limits", "holders", "host:a", "-o", "json").data
    assert (data["limit"], data["capacity"], data["set"], data["held"]) == ("host:a", 1, False, 1)
    assert [(holder["worker"], holder["permits"]) for holder in data["holders"]] == [("w1", 1)]
    (waiter,) = data["waiters"]
    assert (waiter["waiting"], waiter["permits"], waiter["priority"]) == ("w2", 3, 7)
    data = shell.app("limits", "holders", "host", "-o", "json").data
    assert data["held"] == 2
    assert [holder["limit"] for holder in data["holders"]] == ["host:a", "host:b"]
    assert [waiter["limit"] for waiter in data["waiters"]] == ["host:a", "host:b"]
    assert "w0" not in shell.app("limits", "holders", "host").out


def test_jobs_tell_of_their_limits_and_others_show_no_empty_line(
    shell: Shell, app: Dueline
) -> None:
    mine, free = shell.enqueue("tasks.fetch", "a"), shell.enqueue("tasks.free")
    assert "\nlimits     host:a\n" in shell.app("jobs", "show", mine).out
    assert "limits" not in shell.app("jobs", "show", free).out
    app.semaphore("host", capacity=0)
    now_us = app.queues.engine.time.latest_us()
    worker = Presence("w1", ("default",), ("tasks.fetch", "tasks.free"), 4, 0, now_us, now_us, 0)
    announce(app.store, worker, version=bytes(16), beat_every_us=60 * SECOND_US)
    data = shell.app("jobs", "explain", mine, "-o", "json").data
    assert (data["reason"], data["facts"]["limit"]) == ("limit", "host:a")
    assert "(`dueline limits set host 4`)" in data["sentence"]
    assert shell.app("jobs", "explain", free, "-o", "json").data["reason"] == "waiting"


def test_a_limit_that_a_handler_closed_says_until_when(shell: Shell, app: Dueline) -> None:
    shell.app("limits", "set", "warehouse", "2")
    assert "closed" not in shell.app("limits", "holders", "warehouse").out
    until_us = app.queues.engine.time.latest_us() + 3600 * SECOND_US
    suspend(app.queues.engine, ["warehouse"], until_us)
    assert "closed until" in shell.app("limits", "holders", "warehouse").out
