"""What a worker says of itself."""

from dueline.queue import Queues
from dueline.recipes.registry import Presence, announce
from dueline.worker.beat import BEATS_A_LEASE


def tell(queues: Queues, worker: str, *, serving: tuple[str, ...], tasks: tuple[str, ...],
         slots: int, held: int, started_us: int) -> int:  # fmt: skip
    """Write a worker's beat; answer the shortest lease of the queues that it serves."""
    lease_us = min(queues.catalog.settings(queue).lease_us for queue in serving)
    presence = Presence(
        worker=worker,
        queues=serving,
        tasks=tasks,
        slots=slots,
        held=held,
        started_us=started_us,
        beat_us=queues.time.latest_us(),
        clock_skew_us=queues.time.skew_us(),
    )
    every_us = lease_us // BEATS_A_LEASE
    announce(queues.store, presence, version=queues.ids.token(), beat_every_us=every_us)
    return lease_us
