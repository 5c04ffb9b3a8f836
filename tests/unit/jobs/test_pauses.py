"""An application pauses a queue, or some of its jobs."""

from pathlib import Path

import pytest

from dueline import Dueline
from dueline.admin.health import is_ready
from dueline.core.clock import SECOND_US
from dueline.core.errors import BadInput
from dueline.core.queue_settings import PAUSED_MAX, QueueSettings
from dueline.jobs import pauses
from dueline.jobs.history import attempts
from dueline.jobs.paused_tasks import PAGE, clear, waiting_in
from dueline.jobs.shard_status import LATE_US, shards_of
from tests.harness.clocks import HandClock
from tests.harness.cluster import Cluster
from tests.harness.interleaving import Turns, every_order
from tests.harness.queues import queues_on
from tests.harness.stepped_store import SteppedMemoryStore
from tests.harness.world import EVERY_KIND, World, world_on

URLS = ["memory://", "memory://?transactional=off", "sqlite:///{}/a.db?synchronous=NORMAL"]
MANY = PAGE + 20


@pytest.mark.memory
@pytest.mark.parametrize("url", ["memory://", "memory://?transactional=off"])
def test_an_app_pauses_a_queue_and_resumes_it(url: str) -> None:
    app = Dueline(url)

    @app.task(name="add")
    def add(a: int) -> int:
        return a + 1

    app.pause("default")
    job = add.enqueue(1)
    app.run_worker(burst=True)
    assert job.status == "ready"
    app.resume("default")
    app.run_worker(burst=True)
    assert job.result(1) == 2
    app.close()


@pytest.mark.parametrize("url", URLS)
def test_a_paused_tenant_waits_and_the_others_go_on(url: str, tmp_path: Path) -> None:
    # F10
    app = Dueline(url.format(tmp_path))
    ran: list[str] = []

    @app.task(name="note", queue="q")
    def note(text: str) -> None:
        ran.append(text)

    app.pause("q", tenant="a")
    app.pause("q", tenant="")
    jobs = [note.using(tenant=tenant).enqueue(tenant) for tenant in ("a", "b", "", "c") * 2]
    app.run_worker(burst=True)
    assert sorted(ran) == ["b", "b", "c", "c"]
    assert [job.status for job in jobs[::2]] == ["ready"] * 4
    app.resume("q", tenant="")
    app.run_worker(burst=True)
    assert sorted(ran[4:]) == ["", ""]
    app.resume("q")  # which is not paused
    app.run_worker(burst=True)
    assert jobs[0].status == "ready"
    app.resume("q", tenant="a")
    app.run_worker(burst=True)
    assert ran[6:] == ["a", "a"]
    app.close()


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_health_and_shards_do_not_wait_for_paused_tenants(kind: str, tmp_path: Path) -> None:
    world = world_on(kind, tmp_path)
    world.put(tenant="a")
    world.clock.advance(us=LATE_US + SECOND_US)
    world.put(tenant="b")
    world.live()
    assert [check.verdict for check in is_ready(world.queues.engine, max_age_us=SECOND_US)] == [
        "bad"
    ]
    pauses.pause(world.queues.engine, "q", tenants=["a"])
    assert [check.verdict for check in is_ready(world.queues.engine, max_age_us=SECOND_US)] == [
        "good"
    ]
    assert [shard.ready_since_us for shard in shards_of(world.queues.engine, "q")] == [world.now_us]
    world.store.close()


def test_a_pause_that_cannot_be_is_refused_and_changes_nothing() -> None:
    world = world_on("memory", Path())
    with pytest.raises(BadInput):
        pauses.pause(world.queues.engine, "q", tasks=[""])
    with pytest.raises(BadInput, match="one tenant or to one task"):
        Dueline("memory://").pause("q", tenant="a", task="t")
    for tenants in (["a\0"], ["x" * 256], [f"t{number}" for number in range(PAUSED_MAX + 1)]):
        with pytest.raises(BadInput):
            pauses.pause(world.queues.engine, "q", tenants=["good", *tenants])
    assert world.queues.engine.catalog.settings("q") == QueueSettings()


def test_two_who_pause_at_once_pause_both() -> None:
    """Lead two through every order of their steps."""

    def lead(turns: Turns) -> None:
        clock, cluster = HandClock(), Cluster()
        mine, other = (
            queues_on(SteppedMemoryStore(clock, cluster=cluster, step=turns.step), clock)
            for _ in range(2)
        )
        turns.run([
            lambda: pauses.pause(mine.engine, "q", tenants=["a"]),
            lambda: pauses.pause(other.engine, "q", tenants=["b"]),
        ])  # fmt: skip
        world = World(SteppedMemoryStore(clock, cluster=cluster), clock)
        assert world.queues.engine.catalog.settings("q").paused_tenants == ("a", "b")

    assert every_order(lead, switches_max=2) > 3


# --- tasks: their jobs share lanes with others --------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("url", URLS)
def test_a_paused_task_waits_in_front_of_others_and_is_in_nobodys_way(
    url: str, tmp_path: Path
) -> None:
    # F10
    app = Dueline(url.format(tmp_path))
    ran: list[str] = []

    @app.task(queue="q", name="held")
    def held(number: int) -> None:
        ran.append(f"held {number}")

    @app.task(queue="q", name="other")
    def other() -> None:
        ran.append("other")

    app.pause("q", task=held)
    held.enqueue_many((number,) for number in range(MANY))
    other.enqueue()
    app.run_worker(["q"], concurrency=1, burst=True)
    assert ran == ["other"]
    app.resume("q", task="held")
    app.run_worker(["q"], concurrency=1, burst=True)
    assert ran[1:] == [f"held {number}" for number in range(MANY)]
    told = attempts(app.store, "q", 1)
    assert [attempt.outcome for attempt in told] == ["done"] * (MANY + 1)
    app.close()


def test_a_job_of_a_paused_task_with_damaged_options_is_left_and_the_others_deferred() -> None:
    world = world_on("memory", Path())
    first, second = world.put(), world.put()
    job = world.row(first)
    damaged = job._replace(id=world.queues.engine.ids.many(1, 1)[0], opts=b"\xff")
    world.store.add([damaged])
    assert {row.id for row in waiting_in(world.queues.engine, job.lane)} == {first, second}
    assert clear(world.queues.engine, job.lane, {"t"}) == 2
    assert world.row(damaged.id).at_us == job.at_us
