"""Jobs with limits, and workers that share them."""

import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from dueline import Dueline
from dueline.core.clock import SECOND_US
from dueline.jobs.queue import EnqueueRequest
from dueline.limits import semaphore
from dueline.limits.permits import HeldPermits
from dueline.worker.claimer import Claimer
from tests.harness.permits import permits_of, take
from tests.harness.world import World, world_on

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


def no_less_urgent_job_passes_one_with_the_same_limit(url: str, tmp_path: Path) -> None:
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


def a_job_whose_caller_knew_of_no_limit_gets_its_tasks(url: str, tmp_path: Path) -> None:
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
    assert broken.status in ("retrying", "dead")  # its arguments fit nothing, and it says so
    app.close()


def who_dies_gives_back_what_it_held_by_its_lease(kind: str, tmp_path: Path) -> None:
    # F1
    world = world_on(kind, tmp_path)
    semaphore.define(world.store, "s", 2, ids=world.queues.engine.ids)
    one, other = permits_of(world), permits_of(world, "w2")
    assert take(one, "s", jobs=5) == 2
    assert take(other, "s") == 0
    world.clock.advance(us=31 * SECOND_US)
    assert take(other, "s", jobs=5) == 2
    world.store.close()


def what_one_limit_refuses_is_given_back_in_the_others() -> None:
    # F2, rule N2
    world = world_on("memory", Path())
    semaphore.define(world.store, "a", 3, ids=world.queues.engine.ids)
    one, other = permits_of(world), permits_of(world, "w2")
    assert take(one, "b") == 1
    assert take(other, "a", "b", jobs=3) == 0
    other.settle(list)
    assert semaphore.read(world.store, "a")[0].holders == {}
    assert take(one, "a") == 1


def permits_that_a_claim_did_not_need_are_given_back() -> None:
    world = world_on("memory", Path())
    semaphore.define(world.store, "s", 9, ids=world.queues.engine.ids)
    permits = permits_of(world)
    claimer = claimed(world, permits)
    permits.begin(list, 8)
    taken = claimer.claim(8, {})
    assert len(taken) == 4
    permits.settle(lambda: [one.job for one in taken])
    assert semaphore.read(world.store, "s")[0].held("w1", world.now_us) == 4


def who_is_refused_is_next_and_more_urgent_jobs_before_it() -> None:
    # F3, F4: the turn of those who wait, across queues
    world = world_on("memory", Path())
    one, two, urgent = (permits_of(world, name) for name in ("w1", "w2", "w3"))
    assert take(one, "s") == 1
    assert take(two, "s") == 0
    world.clock.advance(us=1)
    assert take(urgent, "s", priority=5) == 0
    one.settle(list)  # its job is done
    assert take(one, "s") == 0
    assert take(two, "s") == 0
    assert take(urgent, "s", priority=5) == 1
    urgent.settle(list)
    assert take(one, "s") == 0
    assert take(two, "s") == 1
    two.settle(list)
    assert take(one, "s") == 1


def claimed(world: World, permits: HeldPermits, limits: Sequence[str] = ("s",)) -> Claimer:
    world.queues.enqueue(EnqueueRequest("q", "t", 0, [b"[1]"] * 4, limits=[limits] * 4))
    claimer = Claimer(world.queues.engine, ["q"], "w1", permits=permits)
    claimer.refresh()
    return claimer


def a_claim_lasts_no_longer_than_its_permits(kind: str, tmp_path: Path) -> None:
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


def a_job_whose_permit_went_to_another_is_lost() -> None:
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
