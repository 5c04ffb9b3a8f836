"""The HTTP API for operators: workers, pauses of streams, redrives, logs."""

from dataclasses import replace
from typing import Any

import pytest

from dueline.admin import redrives
from dueline.admin.redrives import PacedRedrive
from dueline.admin.search import JobFilter
from dueline.coordination.worker_registry import Presence, announce
from dueline.core.clock import SECOND_US
from dueline.core.job import JobId
from dueline.jobs import attempt_lines
from dueline.streams.groups import register
from dueline.web import api
from dueline.worker.heartbeat import Load, PresenceReporter
from tests.harness.http_api import Program
from tests.harness.programs import wait_for
from tests.harness.web import Shop


@pytest.fixture
def program(shop: Shop) -> Program:
    """Use the API as an operator."""
    return Program(api(shop.app, role="operator"))


@pytest.mark.slow
def test_a_worker_is_quieted_and_answers(shop: Shop, program: Program) -> None:
    # O13
    with shop.app.worker(["mail"]):
        wait_for(lambda: program.call("GET", "/workers"), "the worker is there")
        asked = program.call("POST", "/workers/requests", {"what": "quiet"}, status=202)

        def answered() -> object:
            return [
                one
                for one in program.call("GET", "/workers/answers")
                if one["request"] == asked["request"]
            ]

        wait_for(answered, "it answers")
        (answer,) = program.call("GET", "/workers/answers")
        assert (answer["worker"], answer["state"]) == (asked["workers"][0], "quiet")
        assert answer["memory_bytes"] > 0
        wait_for(lambda: program.call("GET", "/workers")[0]["state"] == "quiet", "it says so")
    assert shop.app.admin.actions()[0].what == "quiet worker"


def test_a_worker_names_the_slots_that_it_has_lost(shop: Shop, program: Program) -> None:
    # O12
    lost = (("ab" * 16, "mail.send", 1_700_000_000_000_000),)
    presence = Presence("w1", ("mail",), ("mail.send",), 2, 0, 1, 1, 0, lost=lost)
    engine = shop.app.engine
    presence = replace(presence, beat_us=engine.time.latest_us())
    announce(engine.store, presence, version=b"1", beat_every_us=10 * SECOND_US)
    (worker,) = program.call("GET", "/workers")
    since = "2023-11-14T22:13:20Z"
    assert worker["lost"] == [{"job": "ab" * 16, "task": "mail.send", "since": since}]


def test_who_is_asked_must_be_there(shop: Shop, program: Program) -> None:
    report = PresenceReporter(shop.app.engine, "w1", serving=("mail",)).report
    report(Load(1, 0))
    path = "/workers/requests"
    program.call("POST", path, {"what": "stop", "worker": "w2"}, status=404)
    program.call("POST", path, {"what": "explode"}, status=422)
    assert program.call("POST", path, {"what": "stop", "worker": "w"}, status=202)["workers"] == [
        "w1"
    ]


def test_a_group_and_a_shard_are_paused(shop: Shop, program: Program) -> None:
    register(shop.app.store, "clicks", "billing", from_us=0, version=b"1")
    program.call("POST", "/streams/clicks/pause", {"group": "billing", "shard": 1})
    assert shop.app.stream("clicks").look().paused == (("billing", 1),)
    program.call("POST", "/streams/clicks/resume", {"group": "billing", "shard": 1})
    assert shop.app.stream("clicks").look().paused == ()
    program.call("POST", "/streams/clicks/pause", {}, status=422)
    program.call("POST", "/streams/clicks/pause", {"shard": 99}, status=404)
    program.call("POST", "/streams/nosuch/pause", {"shard": 0}, status=404)


def test_an_event_is_explained(shop: Shop, program: Program) -> None:
    register(shop.app.store, "clicks", "billing", from_us=0, version=b"1", pattern="user.*")
    event = shop.clicks.append({"n": 1}, key="7", topic="user.created")
    told = program.call("GET", f"/streams/clicks/events/{event.id}/explanation")
    assert (told["id"], told["key"], told["topic"]) == (event.id, "7", "user.created")
    billing = next(one for one in told["groups"] if one["group"] == "billing")
    assert (billing["pattern"], billing["job"]) == ("user.*", None)
    assert billing["explanation"]["conditions"][0]["kind"] == "no worker"
    program.call("GET", f"/streams/clicks/events/{'ff' * 16}/explanation", status=404)
    program.call("GET", "/streams/clicks/events/x/explanation", status=422)


def test_a_redrive_is_listed_and_stopped(shop: Shop, program: Program) -> None:
    paced = PacedRedrive(shop.app.queues, JobFilter(queue="mail"), "queue:mail", 2, "ann")
    paced.begin()
    (one,) = program.call("GET", "/redrives")
    assert (one["state"], one["filter"], one["rate"]) == ("running", "queue:mail", 2)
    assert program.call("POST", f"/redrives/{one['id']}/stop")["state"] == "stopped"
    program.call("POST", "/redrives/x/stop", status=404)


def test_a_redrive_is_begun_and_resumed(
    shop: Shop, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redrives, "NOTE_EVERY_US", 10_000)
    dead = len(shop.app.admin.list("state:dead queue:mail").jobs)
    body = {"filter": "queue:mail", "rate": "1/h"}
    one = program.call("POST", "/redrives", body, status=202)
    program.call("POST", "/redrives", body, status=409)
    path = f"/redrives/{one['id']}"

    def progress() -> dict[str, Any]:
        found: dict[str, Any] = program.call("GET", "/redrives")[0]
        return found

    wait_for(lambda: progress()["retried"] == 1, "the first is retried")
    program.call("POST", f"{path}/stop")
    wait_for(lambda: program.ask("POST", f"{path}/resume").status_code == 202, "it has stopped")
    assert progress()["matching"] == dead
    program.call("POST", f"{path}/stop")
    for wrong in ({"filter": "state:nosuch", "rate": "1"}, {"filter": "", "rate": "often"}):
        program.call("POST", "/redrives", wrong, status=422)
    program.call("POST", "/redrives/x/resume", status=404)


def test_what_a_handler_logged_is_returned(shop: Shop, program: Program) -> None:
    engine = shop.app.engine
    row = engine.store.find([JobId(bytes.fromhex(shop.dead))])[0]
    assert row is not None
    now_us = engine.time.latest_us()
    engine.store.together([attempt_lines.written(engine, row, now_us, "hello")])
    (attempt,) = program.call("GET", f"/jobs/{shop.dead}/logs")
    assert (attempt["fence"], attempt["text"]) == (row.fence, "hello")
    assert program.call("GET", f"/jobs/{shop.done}/logs") == []


def test_an_explanation_has_its_conditions_and_commands(shop: Shop, program: Program) -> None:
    # V4
    found = program.call("GET", f"/jobs/{shop.dead}/explanation?until=600")
    (condition,) = found["conditions"]
    assert (found["reason"], condition["kind"], condition["change"]) == ("dead", "dead", "operator")
    assert found["commands"] == [condition["command"]] == [f"dueline dead retry {shop.dead}"]
    assert found["starts"] == "no"
    assert program.call("GET", f"/jobs/{shop.done}/explanation")["starts"] is None


def test_settings_of_a_queue_are_read_and_changed(shop: Shop, program: Program) -> None:
    # A7
    shop.app.queue("mail", keep=60)
    path = "/queues/mail/settings"
    assert program.call("GET", path)["keep"] == 60
    program.call("POST", path, {"keep": 5}, status=403)
    admin = Program(api(shop.app, role="admin"))
    changes = {"keep": 5, "shards": [2, 4], "weights": {"acme": 3}, "history": "all"}
    assert admin.call("POST", path, changes).items() >= {
        "keep": 5, "shards_range": [2, 4], "weights": {"acme": 3}, "history": "all", "poll": 0,
    }.items()  # fmt: skip
    assert shop.app.admin.actions()[0].what.startswith("set history=all, keep_us=5000000")
    for bad in ({}, {"lease": 0}, {"history": "x"}, {"bucket": 60}, {"shards": "x"}):
        admin.call("POST", path, bad, status=422)
    admin.call("POST", "/queues/unknown/settings", {"keep": 5}, status=404)
    assert program.call("GET", path)["lease"] == 30
