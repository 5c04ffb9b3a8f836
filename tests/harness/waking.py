"""Workers that wait, and what starts under them."""

from collections.abc import Callable, Collection, Mapping

from dueline.core.clock import SECOND_US
from dueline.core.ids import Ids
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Store
from dueline.core.wakeup import FALLBACK_US, LocalWakeups, Wakeup
from dueline.jobs.history_recorder import open_engine
from dueline.jobs.queue import Queues
from tests.harness.clocks import HandClock
from tests.harness.worker_bench import Bench

IDLE_US = 60 * SECOND_US


class Lossy(LocalWakeups):
    """Every wake-up is lost; the ears seem to be open all the same."""

    def wake(self, wakeups: Collection[Wakeup]) -> None:
        del wakeups


def engine(store: Store, clock: HandClock, wakeups: LocalWakeups) -> Queues:
    return Queues(
        open_engine(store, clock=clock, ids=Ids(), defaults=QueueSettings(), wakeups=wakeups)
    )


def idle(
    queues: Queues,
    clock: HandClock,
    *,
    threads: int = 2,
    serving: Mapping[str, int | None] | None = None,
) -> Bench:
    """Make a worker that runs on, and looks rarely once it is idle."""
    return Bench(
        queues, clock, threads=threads, burst=False, gap_us_max=FALLBACK_US, serving=serving
    )


def start_of(bench: Bench, clock: HandClock, put_at_us: int, put_it: Callable[[], object]) -> int:
    """Let time pass up to an instant, put a job in, and tell when a handler was called."""
    began_us: list[int] = []
    due = [put_it]

    def meanwhile() -> None:
        wait_us = round(bench.wakeup.waits_s[-1] * 1e6)
        if due and clock.wall_us() + wait_us >= put_at_us:
            clock.advance(us=max(0, put_at_us - clock.wall_us()))
            due.pop()()
        bench.run_all()
        if bench.runner.began:
            began_us.append(clock.wall_us())
            bench.worker.stop()

    bench.wakeup.meanwhile = meanwhile
    bench.run()
    return began_us[0]
