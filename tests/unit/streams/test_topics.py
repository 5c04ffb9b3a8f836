"""Topics: names of events, patterns, subscribers with positions of their own."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dueline import BadInput, Batch, Context, Dueline, Subscription
from dueline.core.call_options import headers_of
from dueline.core.codec import decode_event
from dueline.core.errors import ConfigError
from dueline.streams.topics import check_pattern, check_topic, matches
from dueline.testing.bench import on_bench
from tests.harness.clocks import HandClock
from tests.harness.topic_shop import GUARD_S, TopicShop
from tests.harness.world import EVERY_KIND, store_on


@pytest.fixture(params=EVERY_KIND)
def shop(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    clock: HandClock,
    monkeypatch: Any,  # noqa: ANN401
) -> Iterator[TopicShop]:
    """Make a shop on each store."""
    store = store_on(request.param, tmp_path, clock)
    made = TopicShop(store, clock)
    yield made
    store.close()


@pytest.mark.parametrize(
    ("pattern", "topic", "is_match"),
    [
        ("user.created", "user.created", True),
        ("user.created", "user.created.twice", False),
        ("user.*", "user.created", True),
        ("user.*", "user", False),
        ("user.*", "user.created.twice", False),
        ("*.created", "user.created", True),
        ("user.**", "user.created.twice", True),
        ("user.**", "user", False),
        ("**", "user", True),
        ("user.*", None, False),
    ],
)
def test_a_pattern_matches_by_words(pattern: str, topic: str | None, *, is_match: bool) -> None:
    assert matches(check_pattern(pattern), topic) == is_match


@pytest.mark.parametrize("name", ["", ".", "a..b", "a b", "user.*", "a." + "b" * 300, 5, None])
def test_a_bad_name_is_refused(name: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadInput, match="topic"):
        check_topic(name)


@pytest.mark.parametrize("pattern", ["", "user.*x", "**.created", "a..*", 5])
def test_a_bad_pattern_is_refused(pattern: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadInput, match="pattern"):
        check_pattern(pattern)


def test_each_subscriber_gets_each_event_once(shop: TopicShop) -> None:
    shop.app.publish("user.created", {"id": 1}, key="1")
    shop.app.topic("user.deleted").publish({"id": 2})
    shop.app.publish("order.created", {"id": 3})
    shop.deliver()
    wanted = {
        ("welcome", '[{"id":1}]'): 1,
        ("audit", '[{"id":1}]'): 1,
        ("audit", '[{"id":2}]'): 1,
    }
    assert shop.waiting() == wanted
    shop.deliver()
    assert shop.waiting() == wanted
    assert [lag.rows for lag in shop.app.stream("topics").lag("task welcome")] == [0]


def test_a_later_subscriber_begins_at_its_registration_or_at_the_oldest(shop: TopicShop) -> None:
    shop.app.publish("late.one", 1)
    shop.clock.advance(60)

    @shop.app.task(on="late.*", name="from now")
    def from_now(value: int) -> None: ...

    @shop.app.task(on=Subscription("late.*", start="oldest"), name="from the oldest")
    def from_oldest(value: int) -> None: ...

    shop.deliver()
    shop.app.publish("late.two", 2)
    shop.deliver()
    assert shop.waiting() == {
        ("from now", "[2]"): 1,
        ("from the oldest", "[1]"): 1,
        ("from the oldest", "[2]"): 1,
    }


def test_events_wait_for_subscribers_that_the_publisher_knows(shop: TopicShop) -> None:
    shop.app.publish("user.created", 1)
    assert shop.app.topic("**").subscribers() == {
        "task audit": "user.*",
        "task welcome": "user.created",
    }


def test_a_group_reads_what_its_pattern_matches(shop: TopicShop) -> None:
    heard: list[tuple[str | None, Any]] = []

    @shop.app.topic("user.*").consumer("mail", start="oldest")
    def mail(batch: Batch) -> None:
        heard.extend((event.topic, event.value) for event in batch.events)

    for number in range(3):
        shop.app.publish("user.created", number, key="k")
        shop.app.publish("order.created", number, key="k")
    shop.clock.advance(GUARD_S)
    [(member, _)] = shop.app._make_consumers(["topics/mail"], 1)
    member.balance()
    for shard in member.held:
        while (batch := member.poll(shard)) is not None:
            mail(batch)
            member.commit(batch)
        member.poll(shard)
    assert heard == [("user.created", number) for number in range(3)]
    assert all(lag.rows == 0 for lag in shop.app.stream("topics").lag("mail"))


def test_headers_topic_and_key_reach_the_handler(shop: TopicShop) -> None:
    event = shop.app.publish("user.created", 1, key="7", headers={"request": "7f3a"})
    assert event.headers == {"request": "7f3a"}
    assert decode_event(event.row.body).topic == "user.created"
    shop.deliver()
    (row,) = [row for row in shop.app.queues.peek("default", 9) if row.task == "welcome"]
    assert headers_of(row) == {
        "request": "7f3a", "topic": "user.created", "topic-key": "7", "topic-event": event.id,
    }  # fmt: skip


def publish_and_fail(shop: TopicShop, tx: object) -> None:
    """Publish an event in a transaction that is rolled back."""
    shop.app.publish("user.created", 2, tx=tx)
    raise ZeroDivisionError


def test_an_event_in_a_transaction_is_published_if_it_commits(shop: TopicShop) -> None:
    try:
        with shop.app.transaction() as tx:
            shop.app.publish("user.created", 1, tx=tx)
        with pytest.raises(ZeroDivisionError), shop.app.transaction() as tx:
            publish_and_fail(shop, tx)
    except ConfigError:
        return  # no transactions here
    shop.app.publish("user.created", 3)
    shop.deliver()
    assert shop.waiting() == {(task, f"[{n}]"): 1 for task in ("welcome", "audit") for n in (1, 3)}


def test_a_removed_subscriber_does_not_hold_the_stream(shop: TopicShop) -> None:
    topics = shop.app.stream("topics", keep=60)
    shop.app.publish("user.created", 1)
    shop.clock.advance(7200)
    topics.expire()
    assert len(list(topics.read())) == 1
    for name in shop.app.topic("**").subscribers():
        topics.forget_group(name)
    topics.expire()
    shop.clock.advance(7200)
    assert list(topics.read()) == []


def test_bad_calls_are_refused(shop: TopicShop) -> None:
    with pytest.raises(BadInput, match="pattern"):
        shop.app.topic("user.*").publish(1)
    with pytest.raises(BadInput, match="unique"):
        shop.app.task(on="user.created", unique="a:{x}", name="x")(lambda x: x)
    with pytest.raises(BadInput, match="on="):
        shop.app.task(on=5, name="y")(lambda x: x)  # type: ignore[call-overload]
    with pytest.raises(BadInput, match="one argument"):
        shop.app.task(on="user.created", name="z")(lambda: None)
    with pytest.raises(BadInput, match="start"):
        Subscription("user.*", start="yesterday")  # type: ignore[arg-type]


@pytest.mark.parametrize("url", ["memory://", "memory://?transactional=off"])
def test_workers_run_a_job_for_each_event(url: str) -> None:
    app = Dueline(url)
    ran: list[tuple[int, str]] = []
    has_all = threading.Event()

    @app.task(on="count.*", name="count")
    def count(context: Context, value: int) -> None:
        ran.append((value, context.headers["topic"]))
        if len(ran) == 20:
            has_all.set()

    with app.worker():
        for number in range(20):
            app.publish(f"count.n{number}", number)
        assert has_all.wait(60)
    assert sorted(ran) == [(number, f"count.n{number}") for number in range(20)]


def test_a_burst_moves_events_first() -> None:
    app = Dueline("memory://")
    ran: list[int] = []

    @app.task(on="count.*", name="count")
    def count(value: int) -> None:
        ran.append(value)

    app.publish("count.one", 1)
    app.run_worker(burst=True)
    assert ran == [1]


def test_a_drain_moves_events() -> None:
    app = Dueline("memory://")
    ran: list[int] = []

    @app.task(on="count.*", name="count")
    def count(value: int) -> None:
        ran.append(value)

    with on_bench(app) as bench:
        app.publish("count.one", 1)
        bench.drain()
    assert ran == [1]
