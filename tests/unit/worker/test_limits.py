"""Jobs with limits, and workers that share them."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dueline import Dueline
from dueline.core.clock import SECOND_US
from dueline.core.errors import BadInput, Unknown
from dueline.core.lane import lane_tenant, limits_of, tenant_of
from dueline.core.limit_names import LIMITS_MAX
from dueline.jobs.queue import EnqueueRequest
from dueline.limits import semaphore
from dueline.limits.permits import SLOTS, HeldPermits
from dueline.worker.claimer import Claimer
from tests.harness.permits import permits_of, take
from tests.harness.worker_bench import settler_of
from tests.harness.world import EVERY_KIND, World, world_on

WAIT_S = 60


class Crowd:
    """Counts handlers that run at once."""

    def __init__(self, **together: int) -> None:
        """See nobody. together: under a name all stay until so many have been here at once."""
        self._together = together
        self.peaks: Counter[str] = Counter()
        self.ran: list[str] = []
        self._now: Counter[str] = Counter()
        self._lock = threading.Lock()

    def pass_through(self, *names: str) -> None:
        """Be here for a moment, under these names."""
        with self._lock:
            self._now.update(names)
            self.peaks |= self._now
            self.ran += names
        give_up_s = time.monotonic() + WAIT_S
        time.sleep(0.002)
        while self._is_awaited(names) and time.monotonic() < give_up_s:
            time.sleep(0.002)
        with self._lock:
            self._now.subtract(names)

    def _is_awaited(self, names: Sequence[str]) -> bool:
        return any(self.peaks[name] < self._together.get(name, 0) for name in names)


def run(app: Dueline, workers: int, concurrency: int = 6) -> None:
    """Have workers do all that there is."""
    threads = [
        threading.Thread(target=lambda: app.run_worker(burst=True, concurrency=concurrency))
        for _ in range(workers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def claimed(world: World, permits: HeldPermits, limits: Sequence[str] = ("s",)) -> Claimer:
    world.queues.enqueue(EnqueueRequest("q", "t", 0, [b"[1]"] * 4, limits=[limits] * 4))
    claimer = Claimer(world.queues.engine, ["q"], "w1", permits=permits)
    claimer.refresh()
    return claimer


URLS = ["memory://", "memory://?transactional=off", "sqlite:///{}/a.db?synchronous=NORMAL"]


@pytest.mark.slow
@pytest.mark.parametrize("url", URLS)
def test_no_more_run_at_once_than_a_semaphore_allows(url: str, tmp_path: Path) -> None:
    # F1, F2, F7
    app, crowd = Dueline(url.format(tmp_path)), Crowd(warehouse=3)
    app.semaphore("warehouse", capacity=3)

    @app.task(name="load", limits=["warehouse", "host:{host}"])
    def load(host: str, number: int) -> None:
        crowd.pass_through("warehouse", host)

    @app.task(name="free")
    def free(number: int) -> None:
        crowd.pass_through("free")

    load.enqueue_many([(f"h{number % 5}", number) for number in range(40)])
    free.enqueue_many([(number,) for number in range(20)])
    run(app, 2)
    assert Counter(crowd.ran)["warehouse"] == 40
    assert crowd.peaks["warehouse"] == 3
    assert {crowd.peaks[f"h{number}"] for number in range(5)} == {1}
    for name in ("warehouse", "host"):  # all are given back, and nothing is left of them
        assert semaphore.in_use(app.store, name) == {}
    app.close()


@pytest.mark.slow
@pytest.mark.parametrize("url", URLS)
def test_no_less_urgent_job_passes_one_with_the_same_limit(url: str, tmp_path: Path) -> None:
    # F4: three workers, two queues, two keys; jobs without limits run beside them
    app = Dueline(url.format(tmp_path))
    begun: dict[str, list[int]] = {"a": [], "b": []}

    def note(key: str, priority: int) -> None:
        begun[key].append(priority)

    @app.task(name="free")
    def free(number: int) -> None:
        """Do nothing."""

    tasks = [
        app.task(name=f"note{place}", queue=queue, limits=["key:{key}"])(note)
        for place, queue in enumerate(("default", "other"))
    ]
    priorities = [(number * 7) % 10 for number in range(30)]
    for place, priority in enumerate(priorities):
        for key in begun:
            tasks[place % 2].using(priority=priority).enqueue(key, priority)
    free.enqueue_many([(number,) for number in range(30)])
    run(app, 3)
    for order in begun.values():
        assert order == sorted(priorities, reverse=True)
    app.close()


@pytest.mark.slow
@pytest.mark.memory
def test_random_limits_of_three_in_ten_are_all_served() -> None:
    # F2: no deadlock
    app, crowd = Dueline("memory://"), Crowd()

    @app.task(name="work")
    def work(number: int) -> None:
        crowd.pass_through("work")

    names = [f"s{number}" for number in range(10)]
    for number in range(120):
        three = [names[(number * step + step) % 10] for step in (1, 3, 7)]
        work.using(limits=three).enqueue(number)
    run(app, 3)
    assert len(crowd.ran) == 120
    app.close()


@pytest.mark.memory
def test_a_semaphore_is_resized_live_and_nothing_runs_at_none() -> None:
    app, crowd = Dueline("memory://"), Crowd(warehouse=4)

    @app.task(name="load", limits=["warehouse"])
    def load(number: int) -> None:
        crowd.pass_through("warehouse")

    app.semaphore("warehouse", capacity=0)
    load.enqueue_many([(number,) for number in range(12)])
    run(app, 1)  # a burst does not wait for what nobody allows
    assert crowd.ran == []
    app.semaphore("warehouse", capacity=4)
    run(app, 1)
    assert (len(crowd.ran), crowd.peaks["warehouse"]) == (12, 4)
    app.close()


@pytest.mark.memory
def test_a_semaphore_that_nobody_made_allows_one() -> None:
    app, crowd = Dueline("memory://"), Crowd()

    @app.task(name="load", limits=["one"])
    def load(number: int) -> None:
        crowd.pass_through("one")

    load.enqueue_many([(number,) for number in range(6)])
    run(app, 2)
    assert (len(crowd.ran), crowd.peaks["one"]) == (6, 1)
    app.close()


@pytest.mark.parametrize("url", URLS)
def test_a_job_whose_caller_knew_of_no_limit_gets_its_tasks(url: str, tmp_path: Path) -> None:
    app, crowd = Dueline(url.format(tmp_path)), Crowd()

    @app.task(name="load", limits=["host:{host}"])
    def load(host: str) -> None:
        crowd.pass_through(host)

    queues = app.queues
    jobs = queues.enqueue(
        EnqueueRequest("default", "load", 0, [b'["a"]'] * 6 + [b"[1, 2]"], tenant="t")
    )
    run(app, 1)
    assert (crowd.ran, crowd.peaks["a"]) == (["a"] * 6, 1)
    broken = queues.find(jobs[6].id)
    assert broken.row is not None
    assert "do not fit load(host: str)" in broken.row.error
    app.close()


@pytest.mark.memory
def test_limits_are_written_into_the_lane_beside_the_tenant() -> None:
    app = Dueline("memory://")

    @app.task(name="load", limits=["b", "a:{key}"])
    def load(key: str, other: int = 0) -> None: ...

    jobs = load.using(tenant="acme").enqueue_many([("x",), ("y", 2), {"key": "x"}])
    lanes = [app.queues.find(bytes.fromhex(job.id)).row.lane for job in jobs]  # type: ignore[union-attr, arg-type]
    assert [limits_of(lane) for lane in lanes] == [("a:x", "b"), ("a:y", "b"), ("a:x", "b")]
    assert {tenant_of(lane) for lane in lanes} == {"acme"}
    assert lane_tenant("acme") == "acme"
    plain = load.using(limits=[]).enqueue("x")
    assert limits_of(app.queues.find(bytes.fromhex(plain.id)).row.lane) == ()  # type: ignore[union-attr, arg-type]
    app.close()


@pytest.mark.memory
def test_limits_that_cannot_be_are_refused_and_change_nothing() -> None:
    app = Dueline("memory://")

    def load(host: str) -> None: ...

    for limits in ("warehouse", ["Warehouse"], ["host:{nobody}"], ["a"] * (LIMITS_MAX + 1), [1], 5):
        with pytest.raises(BadInput):
            app.task(name="load", limits=limits)(load)  # type: ignore[arg-type]
    for name, capacity in (("No", 1), ("a", -1), ("a", 1.5), ("a", True)):
        with pytest.raises(BadInput):
            app.semaphore(name, capacity=capacity)  # type: ignore[arg-type]
    task = app.task(name="load", limits=["host:{host}"])(load)
    for host in ("", "a\x1fb", "x" * 201, "line\n"):
        with pytest.raises(BadInput):
            task.enqueue(host)
    with pytest.raises(BadInput):
        task.using(tenant="a\x1fb").enqueue("x")
    assert list(app.queues.engine.jobs_of("default")) == []
    app.close()


# One worker's permits


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_who_dies_gives_back_what_it_held_by_its_lease(kind: str, tmp_path: Path) -> None:
    # F1
    world = world_on(kind, tmp_path)
    semaphore.define(world.store, "s", 2, ids=world.queues.engine.ids)
    permits, other = permits_of(world), permits_of(world, "w2")
    assert take(permits, "s", jobs=5) == 2
    assert take(other, "s") == 0
    world.clock.advance(us=31 * SECOND_US)
    assert take(other, "s", jobs=5) == 2
    world.store.close()


def test_permits_of_other_limits_are_released_when_one_refuses() -> None:
    # F2, rule N2
    world = world_on("memory", Path())
    semaphore.define(world.store, "a", 3, ids=world.queues.engine.ids)
    permits, other = permits_of(world), permits_of(world, "w2")
    assert take(permits, "b") == 1
    assert take(other, "a", "b", jobs=3) == 0
    other.settle(list)
    assert semaphore.read(world.store, "a")[0].holders == {}
    assert take(permits, "a") == 1


def test_permits_that_a_claim_did_not_need_are_given_back() -> None:
    world = world_on("memory", Path())
    semaphore.define(world.store, "s", 9, ids=world.queues.engine.ids)
    permits = permits_of(world)
    claimer = claimed(world, permits)
    permits.begin(list, 8)
    taken = claimer.claim(8, {})
    assert len(taken) == 4
    permits.settle(lambda: [claimed.job for claimed in taken])
    assert semaphore.read(world.store, "s")[0].held("w1", world.now_us) == 4


def test_no_more_jobs_with_limits_are_held_than_there_are_slots() -> None:
    world = world_on("memory", Path())
    semaphore.define(world.store, "s", 50, ids=world.queues.engine.ids)
    permits = permits_of(world)
    permits.begin(list, 3)
    granted = permits.take(("s",), 10, priority=0, queue="q", lease_us=SECOND_US)
    assert granted.jobs == 3
    none = permits.take(("s",), 1, priority=0, queue="q", lease_us=SECOND_US)
    assert (none.jobs, set(none.lacking)) == (0, {SLOTS})


def test_a_refused_worker_is_next_after_more_urgent_jobs() -> None:
    # F3, F4: the turn of those who wait, across queues
    world = world_on("memory", Path())
    holder, waiter, urgent = (permits_of(world, name) for name in ("w1", "w2", "w3"))
    assert take(holder, "s") == 1
    assert take(waiter, "s") == 0
    world.clock.advance(us=1)
    assert take(urgent, "s", priority=5) == 0
    holder.settle(list)  # its job is done
    assert take(holder, "s") == 0
    assert take(waiter, "s") == 0
    assert take(urgent, "s", priority=5) == 1
    urgent.settle(list)
    assert take(holder, "s") == 0
    assert take(waiter, "s") == 1
    waiter.settle(list)
    assert take(holder, "s") == 1


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_claim_lasts_no_longer_than_its_permits(kind: str, tmp_path: Path) -> None:
    # Rule N4
    world = world_on(kind, tmp_path)
    world.queues.engine.catalog.settings("q")
    permits = permits_of(world)
    claimer = claimed(world, permits)
    permits.begin(list, 4)
    (taken,) = claimer.claim(4, {})
    until_us = semaphore.read(world.store, "s")[0].holders["w1"].until_us
    assert taken.job.at_us <= until_us
    assert permits.ends_us([taken.job]) == {taken.job.claim(): until_us}
    world.clock.advance(us=10 * SECOND_US)
    assert permits.keep([taken.job]) == []  # a beat
    assert permits.ends_us([taken.job])[taken.job.claim()] > until_us
    world.store.close()


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_an_extension_ends_with_the_permits(kind: str, tmp_path: Path) -> None:
    """Rule N4: permits that could not be extended bound the claim."""
    world = world_on(kind, tmp_path)
    permits = permits_of(world)
    claimer = claimed(world, permits)
    permits.begin(list, 4)
    (taken,) = claimer.claim(4, {})
    world.clock.advance(us=10 * SECOND_US)
    extended = settler_of(world.queues).extend([taken.job], set(), permits.ends_us([taken.job]))
    until_us = semaphore.read(world.store, "s")[0].holders["w1"].until_us
    assert world.row(taken.job.id).at_us == until_us
    assert extended.ends_us == {taken.job.claim(): until_us}
    world.store.close()


def test_a_job_whose_permit_went_to_another_is_lost() -> None:
    # Rule N4
    world = world_on("memory", Path())
    world.queues.engine.catalog.settings("q")
    permits = permits_of(world)
    claimer = claimed(world, permits)
    permits.begin(list, 4)
    (taken,) = claimer.claim(4, {})
    world.clock.advance(us=31 * SECOND_US)  # it stood still
    assert permits.keep([taken.job]) == []  # nobody has it: it goes on
    world.clock.advance(us=31 * SECOND_US)
    assert take(permits_of(world, "w2"), "s") == 1
    assert permits.keep([taken.job]) == [taken.job]


def test_lanes_that_are_kept_by_a_limit_are_read_again_when_it_is_free() -> None:
    world = world_on("memory", Path())
    other = permits_of(world, "w2")
    assert take(other, "s") == 1
    permits = permits_of(world)
    claimer = claimed(world, permits)
    permits.begin(list, 4)
    assert claimer.claim(4, {}) == []
    assert claimer.has_due()  # so that a burst goes on
    other.settle(list)
    assert claimer.claim(4, {}) == []  # not asked again yet
    world.clock.advance(us=SECOND_US)
    (first,) = claimer.claim(4, {})
    assert claimer.claim(4, {}) == []
    claimer.unblock(permits.begin(list, 4))  # it is done
    (second,) = claimer.claim(4, {})
    assert first.job.id != second.job.id


def test_a_claimer_without_permits_leaves_limited_jobs_alone() -> None:
    world = world_on("memory", Path())
    world.queues.enqueue(EnqueueRequest("q", "t", 0, [b"[1]"] * 2, limits=[("s",), ()]))
    claimer = Claimer(world.queues.engine, ["q"], "w1")
    claimer.refresh()
    assert [limits_of(claimed.job.lane) for claimed in claimer.claim(9, {})] == [()]
    assert claimer.claim(9, {}) == []


def test_permits_of_unknown_fate_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_on("memory", Path())
    permits = permits_of(world)
    write = semaphore.write

    def lose(answer: Callable[..., bool], *args: object, **named: object) -> bool:
        answer(*args, **named)
        raise Unknown("It may have happened.")

    with monkeypatch.context() as patch:
        patch.setattr(semaphore, "write", lambda *args, **named: lose(write, *args, **named))
        with pytest.raises(Unknown):
            take(permits, "s")
    assert semaphore.read(world.store, "s")[0].in_use(world.now_us) == 1
    permits.settle(list)
    assert semaphore.in_use(world.store, "s") == {}
