"""Other parts in the engine of queues, also for whoever holds that engine already."""

from dueline.core.clock import StoreTime
from dueline.core.store import Store
from dueline.core.wakeup import Wakeups
from dueline.jobs.history_recorder import recording
from dueline.jobs.queue import Queues


def swap(
    queues: Queues,
    *,
    store: Store | None = None,
    wakeups: Wakeups | None = None,
    time: StoreTime | None = None,
) -> None:
    """Replace a store, what wakes workers, or the store's time; None: it stays.

    An engine is frozen, and nothing but a test swaps a part of one that is in use.
    """
    engine = queues.engine
    if store is not None:
        recording_store = recording(store, engine.catalog, engine.time.latest_us)
        object.__setattr__(engine, "store", store)
        object.__setattr__(engine, "recording_store", recording_store)
        queues._store, queues._recording = store, recording_store
    if wakeups is not None:
        object.__setattr__(engine, "wakeups", wakeups)
    if time is not None:
        object.__setattr__(engine, "time", time)
