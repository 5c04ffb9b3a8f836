"""The settings of a worker."""

from collections.abc import Mapping
from dataclasses import dataclass

from dueline.coordination.worker_registry import KnownTasks
from dueline.core.clock import SECOND_US


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How a worker works.

    Attributes:
      worker: Its id, `<host>:<pid>:<random>`.
      serving: Queues, each with its own slots, or None for the shared ones.
      known: The tasks that it can run; more may be registered while it runs.
      burst: Return when no job is due.
      drain_us: Maximum duration that running handlers may continue after `stop`.
      settles_beside: Whether a thread settles attempts; None where that is a distant transaction.
      is_embedded: Whether the process goes on after the worker, with the handlers in its threads.
      prefetch: Whether jobs are claimed before they can start: for busy slots, or soon due.
    """

    worker: str
    serving: Mapping[str, int | None]
    known: KnownTasks
    burst: bool = False
    drain_us: int = 25 * SECOND_US
    settles_beside: bool | None = None
    prefetch: bool = True
    is_embedded: bool = False
