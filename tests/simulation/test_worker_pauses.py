"""How long jobs wait while their queue is cut anew, and after its store was away."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count

import pytest

from dueline.core.clock import SECOND_US
from dueline.core.errors import DuelineError
from dueline.core.queue_settings import QueueSettings
from dueline.jobs.queue import EnqueueRequest, Queues
from simulation.data import Data
from simulation.green import planted
from simulation.people import Town
from simulation.scenario import QUEUE, Scenario
from simulation.shop import RunLog, Shop, opened
from simulation.tape import Tape
from simulation.world import BEGIN_US, World
from tests.simulation.outage import Away, Outage

EVERY_US = 100_000


def scenario_of(*, is_stepped: bool, hears: bool) -> Scenario:
    """Draw nothing: two workers of two slots, and nothing that goes wrong by itself."""
    return Scenario(
        is_stepped=is_stepped, settings=QueueSettings(), faults=(), producers=0, calls=0,
        workers=2, slots=2, has_operator=False, keys=0, hears=hears, is_redeployed=False,
        lasts_us=0, drifts=False,
    )  # fmt: skip


class Queue:
    """Somebody enqueues a job now and then, two workers run them.

    starts: when each job was started.
    """

    def __init__(self, *, is_stepped: bool, hears: bool) -> None:
        """Make a world of their own."""
        self.world = World(Tape(0, []))
        self.outage = Outage()
        self.diary = RunLog()
        data = Data(self.world, "steps" if is_stepped else "memory")
        self.town = Town(
            self.world,
            scenario_of(is_stepped=is_stepped, hears=hears),
            self.diary,
            lambda link: data.reach(Away(self.world, link.process, self.outage)),
            seed=1,
        )

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Start everybody, and let them live for five seconds, then for as long as the block."""
        with planted(self.world), opened(Shop(self.world, self.diary)):
            try:
                self.town.start_worker()
                self.town.start_worker()
                self.town.start_person("producer", self._produce)
                self.until(5)
                yield
            finally:
                self.world.close()

    def until(self, instant_s: float) -> None:
        """Let time pass up to an instant, counted from the beginning."""
        self.world.run(BEGIN_US + round(instant_s * SECOND_US), lambda: False)
        for _, error in self.world.failures:
            raise error

    def starts(self) -> list[float]:
        """Tell when jobs were started, in seconds since the beginning."""
        return [
            (event.t - BEGIN_US) / SECOND_US for event in self.diary.events if event.f == "start"
        ]

    def waits(self) -> list[tuple[float, float]]:
        """Tell when each job was started, and how long after it was sent, in seconds."""
        sent = {
            event.id: event.t
            for event in reversed(self.diary.events)
            if event.f == "enqueue" and event.type == "invoke"
        }
        return [
            ((event.t - BEGIN_US) / SECOND_US, (event.t - sent[event.id]) / SECOND_US)
            for event in self.diary.events
            if event.f == "start"
        ]

    def cut(self, shards: int, town: Town, queues: Queues) -> None:
        """Cut the queue anew, and be the first to put jobs into the new shards."""
        queues.engine.catalog.configure(QUEUE, shards=shards)
        self._produce(town, queues, most=80)

    def _produce(self, town: Town, queues: Queues, most: int | None = None) -> None:
        for number in range(most) if most else count():
            body = json.dumps([number, 20_000, "done"]).encode()
            with suppress(DuelineError):
                queues.enqueue(EnqueueRequest(QUEUE, "work", 0, [body]))
            town.world.sleep(EVERY_US)


@pytest.mark.parametrize(
    ("is_stepped", "hears", "slow_s"),
    [(False, True, 0), (False, False, 2), (True, False, 2)],
    ids=["memory", "memory-unheard", "steps"],
)
def test_workers_go_on_by_themselves_within_five_seconds_after_ten_minutes_of_outage(
    *, is_stepped: bool, hears: bool, slow_s: float
) -> None:
    # R8
    queue = Queue(is_stepped=is_stepped, hears=hears)
    with queue.alive():
        assert len(queue.starts()) > 30
        queue.outage.begin(queue.world, 600, slow_s=slow_s)
        queue.until(605)
        before = len(queue.starts())
        assert max(queue.starts()) < 6
        queue.until(612)
    again = queue.starts()[before:]
    assert again[0] < 610
    assert len(again) > 15


@pytest.mark.parametrize("is_stepped", [False, True], ids=["memory", "steps"])
@pytest.mark.parametrize("hears", [True, False], ids=["woken", "unheard"])
def test_no_job_waits_a_second_while_shards_are_added_and_taken_away(
    *, is_stepped: bool, hears: bool
) -> None:
    # H7: 1, then 7, then 3 shards
    queue = Queue(is_stepped=is_stepped, hears=hears)
    with queue.alive():
        for shards, instant_s in ((7, 15), (3, 25)):
            queue.town.start_person("operator", partial(queue.cut, shards))
            queue.until(instant_s)
    late = [wait_s for at_s, wait_s in queue.waits() if at_s > 5]
    assert len(late) > 180
    assert max(late) < 1
