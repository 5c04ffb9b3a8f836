"""`dueline topics`, and patterns of `dueline streams read`."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dueline import Dueline
from dueline.streams.group_health import stuck_groups
from tests.harness.shell import Shell


@pytest.fixture
def app(shell: Shell) -> Iterator[Dueline]:
    """Make an application with two subscribers on the store of the shell's folder."""
    assert shell is not None
    app = Dueline("sqlite:///jobs.db")

    @app.task(on="user.created", name="shop.welcome")
    def welcome(user: int) -> None: ...

    app.topic("order.**").consumer("billing")(lambda batch: batch)
    yield app
    app.close()


def events(shell: Shell, *words: str) -> list[Any]:
    """Read the stream of topics."""
    answer = shell.app("streams", "read", "topics", *words, "-o", "ndjson")
    return [json.loads(line) for line in answer.out.splitlines()]


def test_topics_show_subscribers_and_how_far_they_are_behind(shell: Shell, app: Dueline) -> None:
    app.publish("user.created", 1)
    app.publish("user.deleted", 2)
    listed = shell.app("topics", "list", "-o", "json").data
    assert [
        (subscriber["subscriber"], subscriber["pattern"], subscriber["behind"])
        for subscriber in listed
    ] == [
        ("billing", "order.**", 0),
        ("task shop.welcome", "user.created", 1),
    ]
    (only,) = shell.app("topics", "list", "user.*", "-o", "json").data
    assert only["subscriber"] == "task shop.welcome"
    assert shell.app("topics", "forget", "billing").code == 0
    assert shell.app("topics", "forget", "billing").code == 4
    assert app.topic("**").subscribers() == {"task shop.welcome": "user.created"}


def test_an_event_is_published_by_hand(shell: Shell, app: Dueline) -> None:
    app.publish("user.created", 1)
    answer = shell.app(
        "topics", "publish", "user.created", '{"id": 7}', "--key", "7", "--header", "by=ann",
        "-o", "json",
    )  # fmt: skip
    assert answer.data["subscribers"] == 1
    *_, event = app.stream("topics").read()
    assert (event.topic, event.key, event.value, event.headers) == (
        "user.created", "7", {"id": 7}, {"by": "ann"},
    )  # fmt: skip
    for words in (("user.*", "1"), ("user.created", "{"), ("user.created", "1", "--header", "x")):
        assert shell.app("topics", "publish", *words).code == 2


def test_streams_are_read_by_patterns_of_keys_and_topics(shell: Shell, app: Dueline) -> None:
    for number, topic in enumerate(["user.created", "user.deleted", "order.created"]):
        app.publish(topic, number, key=topic, headers={"n": str(number)})

    def read(*words: str) -> list[int]:
        return [event["value"] for event in events(shell, *words)]

    assert read("--key", "user.*") == read("--topic", "user.*") == [0, 1]
    assert read("--key", "order.created") == read("--topic", "order.**") == [2]
    assert read("--key", "user") == read("--topic", "*") == []
    assert shell.app("streams", "read", "topics", "--topic", "a b").code == 2
    first, *_ = events(shell)
    assert (first["topic"], first["headers"]) == ("user.created", {"n": "0"})


def test_an_event_is_explained_by_its_id_and_position(shell: Shell, app: Dueline) -> None:
    event = app.publish("user.created", 1, headers={"by": "ann"})
    for name in (event.id, str(event.position)):
        told = shell.app("streams", "explain", "topics", name, "-o", "json").data
        assert (told["id"], told["topic"], told["headers"]) == (
            event.id, "user.created", {"by": "ann"},
        )  # fmt: skip
        assert [(group["group"], group["reason"], group["job"]) for group in told["groups"]] == [
            ("billing", "never", None),
            ("task shop.welcome", "no worker", None),
        ]
    words = ("streams", "explain", "topics", event.id, "--group")
    assert "No live worker has the task shop.welcome" in shell.app(*words, "task shop.welcome").out
    assert shell.app(*words, "task nosuch").code == 4
    assert shell.app("streams", "explain", "topics", "ff" * 16).code == 4
    assert shell.app("streams", "explain", "topics", "x").code == 2


def test_doctor_names_a_task_that_no_worker_has(app: Dueline) -> None:
    app.publish("user.created", 1)
    (check,) = stuck_groups(app.engine, max_age_us=0, verdict="warning")
    assert check.name == "group topics/task shop.welcome"
    assert "no live member" in check.finding
    assert "dueline topics forget 'task shop.welcome'" in check.advice
