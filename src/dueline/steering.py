"""What an application lets wait, and how much of it runs at once."""

from datetime import timedelta
from typing import Any, Protocol

from dueline import pausing
from dueline.clock import asked_span_us
from dueline.errors import BadInput
from dueline.limiting import check_semaphore
from dueline.queue import Queues
from dueline.recipes import rate, semaphore
from dueline.recipes.rate import Rate, check_rate


class Host(Protocol):
    """What this needs of the application."""

    @property
    def queues(self) -> Queues:
        """The engine; connects at the first use."""
        ...

    @property
    def is_open(self) -> bool:
        """Tell whether the engine was used before."""
        ...


class Named(Protocol):
    """A task."""

    @property
    def name(self) -> str:
        """The name under which its jobs are stored."""
        ...


class Steering:
    """Pauses of queues, and of tenants and tasks in them; semaphores, rates."""

    def __init__(self, host: Host) -> None:
        """Take the application; opens nothing."""
        self._host = host
        self._semaphores: dict[str, int] = {}
        self._rates: dict[str, Rate] = {}

    def semaphore(self, name: str, *, capacity: int) -> None:
        """Let at most so many jobs run at once that have this limit, in all workers.

        Where a limit has a key, as "host:{host}" has, as many of each key. A semaphore that
        nobody makes has a capacity of 1. Workers know a change within two seconds; jobs that run
        go on. Stored at the first use of the store, or now if that was before.

        Args: capacity: 0 lets none run.

        Raises: BadInput: a name or capacity out of range.
        """
        check_semaphore(name, capacity)
        if self._host.is_open:
            semaphore.define(self._host.queues.store, name, capacity, ids=self._host.queues.ids)
        else:
            self._semaphores[name] = capacity

    def rate(
        self, name: str, count: int, *, per: timedelta | float, burst: int | None = None
    ) -> None:
        """Let at most so many jobs start in a span of time that have this limit, in all workers.

        Where a limit has a key, as "host:{host}" has, as many of each key. Workers know a change
        within two seconds. Stored at the first use of the store, or now if that was before.

        Args:
          per: the span, a timedelta or seconds.
          burst: None: in no span of this length do more start. Otherwise they start evenly, one
            each `per / count`, and after a pause so many at once.

        Raises: BadInput: a name or number out of range.
        """
        one = check_rate(name, count, asked_span_us(per, "per"), burst)
        if self._host.is_open:
            rate.define(self._host.queues.store, name, one, ids=self._host.queues.ids)
        else:
            self._rates[name] = one

    def store(self, queues: Queues) -> None:
        """Store the semaphores and rates that were declared before the first use."""
        for name, capacity in self._semaphores.items():
            semaphore.define(queues.store, name, capacity, ids=queues.ids)
        for name, one in self._rates.items():
            rate.define(queues.store, name, one, ids=queues.ids)

    def pause(
        self, queue: str, *, tenant: str | None = None, task: Named | str | None = None
    ) -> None:
        """Let no job of a queue be claimed, by any worker; or none of a tenant, or of a task.

        Idle workers are told at once, busy ones look four times a second; all know it within
        5 s. Running jobs go on, and so does what a worker has claimed.

        Args: task: a task, or its name.
        """
        pausing.pause(self._host.queues, queue, **_chosen(tenant, task))

    def resume(
        self, queue: str, *, tenant: str | None = None, task: Named | str | None = None
    ) -> None:
        """End a pause: that of the queue, or that of a tenant or of a task."""
        pausing.resume(self._host.queues, queue, **_chosen(tenant, task))


def _chosen(tenant: str | None, task: Named | str | None) -> dict[str, Any]:
    if tenant is not None and task is not None:
        raise BadInput("A pause is of a tenant or of a task.", hint="Pause one after the other.")
    name = task if isinstance(task, str | None) else task.name
    return {
        "tenants": () if tenant is None else (tenant,),
        "tasks": () if name is None else (name,),
    }
