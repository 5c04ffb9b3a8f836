"""Topics on each kind of store: each subscriber gets each event once (W9)."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from dueline import Event
from dueline.core.errors import DuelineError
from dueline.core.job import Job
from dueline.core.store import Store
from dueline.streams import groups
from tests.harness.addresses import IN_MEMORY, WITH_ADDRESS, world_of
from tests.harness.clocks import HandClock
from tests.harness.cluster import Cluster
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.stepped_store import SteppedMemoryStore
from tests.harness.topic_shop import EXPIRED_S, GUARD_S, TopicShop
from tests.harness.world import World, store_on

EVENTS = 12


@pytest.fixture(params=[*IN_MEMORY, *WITH_ADDRESS])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Make an empty store of each kind, whose time is moved by hand."""
    with world_of(request.param, tmp_path) as made:
        yield made


def publish(shop: TopicShop, count: int = EVENTS) -> Counter[tuple[str, str]]:
    """Publish numbered events, two thirds to `user.created`; return the jobs that are wanted."""
    wanted = Counter[tuple[str, str]]()
    for number in range(count):
        topic = "user.deleted" if number % 3 == 0 else "user.created"
        shop.app.publish(topic, number, key=str(number % 4))
        shop.app.publish("order.created", number)
        wanted[("audit", f"[{number}]")] = 1
        if topic == "user.created":
            wanted[("welcome", f"[{number}]")] = 1
    return wanted


def test_each_subscriber_gets_each_event_once_from_several_workers(world: World) -> None:
    shops = [TopicShop(world.store, world.clock) for _ in range(2)]
    shops[0].app.stream("topics", shards=3)
    wanted = publish(shops[0])
    first, second = [shop.begin() for shop in shops]
    for number in range(8):
        world.clock.advance(GUARD_S)
        first.step()
        second.step()
        if number == 2:
            wanted += Counter(publish(shops[1], 3))
    for dead in first._subscribers:  # servers let heartbeats expire by clocks of their own
        groups.leave(world.store, "topics", dead.group, dead.member.name)
    del first  # it dies, and its leases last
    wanted += Counter(publish(shops[1], 3))
    for _ in range(8):
        world.clock.advance(EXPIRED_S / 3)
        while second.step():
            pass
    assert shops[1].waiting() == wanted
    stream = shops[1].app.stream("topics")
    for group in ("task welcome", "task audit"):
        assert sum(lag.rows for lag in stream.lag(group)) == 0


def reasons(shop: TopicShop, event: Event) -> dict[str, str]:
    """Explain an event; return the reason of each subscriber."""
    told = shop.app.admin.explain_event("topics", event.id).deliveries
    assert told == shop.app.admin.explain_event("topics", str(event.position)).deliveries
    return {delivery.group.removeprefix("task "): delivery.explanation.reason for delivery in told}


def test_what_became_of_an_event_is_explained(world: World) -> None:
    shop = TopicShop(world.store, world.clock)
    stream, explain = shop.app.stream("topics"), shop.app.admin.explain_event
    first = shop.app.publish("user.created", 1)
    event = shop.app.publish("user.deleted", 2, key="a")
    assert reasons(shop, first) == {"welcome": "no worker", "audit": "no worker"}
    assert reasons(shop, event) == {"welcome": "never", "audit": "no worker"}
    [audit, _] = explain("topics", event.id).deliveries
    assert [cause.facts.get("behind") for cause in audit.explanation.conditions] == [None, 1]

    worker = shop.begin()
    for subscriber in worker._subscribers:
        subscriber.member.balance()
    stream.pause(group="task audit")
    assert reasons(shop, event) == {"welcome": "never", "audit": "paused"}
    stream.resume(group="task audit")
    assert reasons(shop, first) == {"welcome": "claimed", "audit": "claimed"}
    world.clock.advance(GUARD_S)
    worker.step()
    assert reasons(shop, first) == {"welcome": "no worker", "audit": "no worker"}
    for delivery in explain("topics", first.id).deliveries:  # now of the jobs
        assert delivery.job in {job.id.hex() for job in peeked(shop)}
    shop.app.queues.cancel(next(job.id for job in peeked(shop) if job.body == b"[2]"))
    assert reasons(shop, event) == {"welcome": "never", "audit": "cancelled"}

    groups.register(world.store, "topics", "late", from_us=2**60, version=b"1", pattern="**")
    stream.consumer("all")
    assert reasons(shop, event)["late"] == "never"
    for unknown in ("ff" * 16, f"{event.position}00"):
        with pytest.raises(DuelineError):
            explain("topics", unknown)
    [latest, before] = shop.app.admin.stream("topics", events=2).latest
    assert (latest.id, before.id) == (event.id, first.id)


def test_an_event_that_has_expired_is_explained_by_its_jobs(world: World) -> None:
    shop = TopicShop(world.store, world.clock)
    shop.app.stream("topics", keep=timedelta(minutes=1))
    event = shop.app.publish("user.created", 1)
    shop.deliver()
    jobs = {job.id.hex() for job in peeked(shop)}
    world.clock.advance(300)
    shop.app.publish("user.created", 2)
    shop.deliver()
    world.clock.advance(300)
    shop.app.stream("topics").expire()
    told = shop.app.admin.explain_event("topics", event.id)
    assert told.event is None
    assert {delivery.job for delivery in told.deliveries} == jobs


def peeked(shop: TopicShop) -> list[Job]:
    """Return the waiting jobs."""
    return [job for queue in ("default", "audit") for job in shop.app.queues.peek(queue, 1000)]


def stopped_at(step: int, lanes: int) -> bool:
    """Stop a worker before a step; let another one with other lanes go on. Was it stopped?"""
    clock, cluster, left = HandClock(), Cluster(), [-1]

    def before(_name: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    first = TopicShop(SteppedMemoryStore(clock, cluster=cluster, step=before), clock)
    wanted = publish(first, 4)
    clock.advance(GUARD_S)
    deliveries, left[0] = first.begin(), step
    try:
        for _ in range(4):
            deliveries.step()
        is_stopped = False
    except KeyboardInterrupt:
        is_stopped = True
    second = TopicShop(SteppedMemoryStore(clock, cluster=cluster), clock)
    second.end_jobs()
    second.app.engine.catalog.configure("default", shards=lanes)
    second.app.engine.catalog.configure("audit", shards=lanes)
    for _ in range(3):
        clock.advance(EXPIRED_S)
        second.deliver()
    assert second.ended + second.waiting() == wanted, step
    return is_stopped


@pytest.mark.slow
def test_a_worker_that_is_stopped_anywhere_loses_and_doubles_nothing() -> None:
    step = 1
    while stopped_at(step, lanes=4):
        step += 1
    assert step > 30


def disturbed(store: Store, clock: HandClock, number: int, fault: Fault) -> bool:
    """Let one call fail; return whether there was such a call."""
    wanted = publish(TopicShop(store, clock), 4)
    failing = FailingStore(store, {})
    shop = TopicShop(failing, clock)
    shop.app.engine.catalog.settings("default")
    failing._plan = {failing.calls + number: fault}
    before = failing.calls
    for _ in range(4):
        try:
            shop.deliver()
        except DuelineError:
            continue
        clock.advance(EXPIRED_S)
    assert shop.waiting() == wanted
    return failing.calls - before >= number


@pytest.mark.slow
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("kind", ["memory", "steps"])
def test_a_call_that_fails_loses_and_doubles_nothing(
    kind: str, fault: Fault, tmp_path: Path
) -> None:
    for number in range(1, 60, 2 if fault is Fault.BEFORE else 1):
        clock = HandClock()
        if not disturbed(store_on(kind, tmp_path, clock), clock, number, fault):
            break


@pytest.mark.parametrize("kind", ["memory", "steps"])
def test_an_event_that_comes_twice_is_one_job(kind: str, tmp_path: Path) -> None:
    clock = HandClock()
    shop = TopicShop(store_on(kind, tmp_path, clock), clock)
    shop.app.stream("topics", shards=2)
    row = shop.app.publish("user.created", 1).row
    shop.deliver()
    shop.app.engine.catalog.configure("default", shards=4)
    clock.advance(EXPIRED_S)
    shop.app.engine.store.append([row._replace(shard=1 - row.shard)])  # as after resharding
    shop.deliver()
    assert shop.waiting() == {("welcome", "[1]"): 1, ("audit", "[1]"): 1}
    for read in shop.app.stream("topics").lag("task welcome"):
        assert read.read == 1
