"""The deletion of empty queues, against processes that enqueue."""

from collections.abc import Callable

from dueline.core.queue_settings import QueueSettings
from dueline.jobs.queue import EnqueueRequest, Queues
from dueline.monitor.empty_queues import WAIT_US, remove_empty_queues
from dueline.worker.claimer import Claimer
from tests.harness.clocks import HandClock
from tests.harness.cluster import Cluster
from tests.harness.interleaving import Turns, every_order
from tests.harness.queues import queues_on
from tests.harness.stepped_store import SteppedMemoryStore
from tests.harness.world import World

CALL = EnqueueRequest("q", "t", 0, [b"[1]"])


STAGES = 3
"""Marked, seen to be marked, gone."""


HISTORY_US = QueueSettings().history_us


def rounds(world: World, count: int = STAGES) -> list[int]:
    """Have so many rounds of the chore; answer what each did."""
    acts = []
    for _ in range(count):
        world.clock.advance(us=WAIT_US + 1)
        acts.append(remove_empty_queues(world.queues.engine, None).acts)
    return acts


def engine_of(clock: HandClock, cluster: Cluster, step: Callable[[str], None]) -> Queues:
    """Make the engine of one process, on the model without transactions."""
    store = SteppedMemoryStore(clock, cluster=cluster, step=step)
    queues = queues_on(store, clock)
    queues.engine.time.latest_us()
    return queues


def check_known(queues: Queues) -> None:
    """Check that the job is in a queue that is known, and is there to be claimed."""
    assert queues.engine.catalog.names() == ["q"]
    claimer = Claimer(queues.engine, ["q"], "w1")
    claimer.refresh()
    assert len(claimer.claim(9, {})) == 1


Put = Callable[[Queues], object]
"""Puts a job, by a producer's engine."""


Prepare = Callable[[Queues, HandClock], Put]
"""Brings a queue to where it may go, by the monitor's engine; gives how a job comes then."""


def against_monitor(prepare: Prepare) -> int:
    """Let a job be put, by one who read of the queue before, while the monitor does its stages."""

    def lead(turns: Turns) -> None:
        clock, cluster = HandClock(), Cluster()
        producer, monitor = (engine_of(clock, cluster, turns.step) for _ in range(2))
        put = prepare(monitor, clock)
        producer.engine.catalog.settings("q")

        def let_go() -> None:
            for _ in range(STAGES):
                remove_empty_queues(monitor.engine, None)
                clock.advance(us=WAIT_US + 1)

        turns.run([lambda: put(producer), let_go])
        check_known(engine_of(clock, cluster, nothing))

    return every_order(lead, switches_max=3)


def hurried_against_monitor(prepare: Prepare) -> int:
    """Let time pass, and a job be put, while the monitor stands still before any of its steps."""

    def lead(turns: Turns) -> None:
        clock, cluster = HandClock(), Cluster()
        producer, monitor = (engine_of(clock, cluster, turns.step) for _ in range(2))
        put = prepare(monitor, clock)
        producer.engine.catalog.settings("q")

        def put_late() -> None:
            clock.advance(us=WAIT_US + 1)
            put(producer)

        turns.run(
            [put_late, lambda: [remove_empty_queues(monitor.engine, None) for _ in range(STAGES)]]
        )
        for _ in range(STAGES):
            clock.advance(us=WAIT_US + 1)
            remove_empty_queues(monitor.engine, None)
        check_known(engine_of(clock, cluster, nothing))

    return every_order(lead, switches_max=3)


def nothing(_step: str) -> None:
    """Let a step happen."""
