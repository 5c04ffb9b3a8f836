"""What lives found wrong, by itself and as small as it gets."""

from dueline.core.clock import SECOND_US
from dueline.jobs.queue import Queues
from tests.harness.calls import call, put, row_of
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.worker_bench import Bench


def what_has_ended_is_not_run_again_when_it_is_sent_again(queues: Queues, clock: HandClock) -> None:
    ended, waits = put(queues, call(1), call(2)._replace(due_us=NOW_US + 60 * SECOND_US))
    assert Bench(queues, clock).run() == [1]
    queues.enqueue_again([ended, waits, row_of(7)])
    found = queues.engine.store.find([ended.id, waits.id, row_of(7).id])
    assert [row is not None for row in found] == [False, True, True]
