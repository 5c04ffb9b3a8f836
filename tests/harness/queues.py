"""The queues of one process on a store."""

from dueline.core.clock import Clock
from dueline.core.ids import Ids
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Store
from dueline.jobs.history_recorder import open_engine
from dueline.jobs.queue import Queues

DEFAULTS = QueueSettings()


def queues_on(store: Store, clock: Clock, defaults: QueueSettings = DEFAULTS) -> Queues:
    """Make the queues of a process with ids of its own.

    Args:
      store: where the jobs are.
      clock: the clock of this process.
      defaults: settings of queues that nobody has configured.
    """
    return Queues(open_engine(store, clock=clock, ids=Ids(), defaults=defaults))
