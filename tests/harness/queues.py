"""The queues of one process on a store."""

from collections.abc import Callable

from dueline.core.clock import Clock
from dueline.core.ids import Ids
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Store
from dueline.jobs.history_recorder import open_engine
from dueline.jobs.queue import Queues
from tests.harness.clocks import HandClock
from tests.harness.cluster import Cluster
from tests.harness.stepped_store import SteppedMemoryStore, nothing

DEFAULTS = QueueSettings()


def queues_on(store: Store, clock: Clock, defaults: QueueSettings = DEFAULTS) -> Queues:
    """Make the queues of a process with ids of its own.

    Args:
      store: where the jobs are.
      clock: the clock of this process.
      defaults: settings of queues that nobody has configured.
    """
    return Queues(open_engine(store, clock=clock, ids=Ids(), defaults=defaults))


def process_on(cluster: Cluster, clock: HandClock, step: Callable[[str], None] = nothing) -> Queues:
    """Make the queues of a process on the model without transactions, which knows the queue q."""
    queues = queues_on(SteppedMemoryStore(clock, cluster=cluster, step=step), clock)
    queues.engine.catalog.settings("q")
    return queues
