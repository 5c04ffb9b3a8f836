"""What a worker says of itself while it works."""

from dueline.coordination.worker_registry import Presence, present
from dueline.core.clock import SECOND_US
from dueline.jobs.queue import Queues
from dueline.worker.heartbeat import CHANGE_EVERY_US
from tests.harness.calls import call, put
from tests.harness.clocks import HandClock
from tests.harness.worker_bench import Bench


def of(queues: Queues) -> Presence:
    """Read the only worker."""
    (presence,) = present(queues.engine.store)
    return presence


def test_a_worker_reports_what_it_holds_and_runs_before_its_next_heartbeat(
    queues: Queues, clock: HandClock
) -> None:
    put(queues, *(call(number) for number in range(3)))
    bench = Bench(queues, clock, threads=2)
    bench.beat()
    said: list[Presence] = []

    def meanwhile() -> None:
        bench.runner.begin()
        clock.advance(us=CHANGE_EVERY_US)
        bench.worker._attend()
        said.append(of(queues))
        bench.runner.end()
        bench.wakeup.set()

    bench.wakeup.meanwhile = meanwhile
    bench.run()
    assert (said[0].held, said[0].running, said[0].slots) == (2, 2, 2)
    assert not said[0].is_draining
    assert clock.wall_us() - said[0].beat_us < 10 * SECOND_US
