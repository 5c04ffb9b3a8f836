"""What an application takes in and lets wait, and how much of it runs at once."""

from datetime import timedelta
from typing import Any, Protocol

from dueline.api.connection import Connection
from dueline.core.clock import asked_span_us
from dueline.core.engine import Engine
from dueline.core.errors import BadInput
from dueline.core.limit_names import check_semaphore
from dueline.core.queue_settings import Quota, check_queue_name, check_quota
from dueline.core.validation import check_tenant
from dueline.jobs import pauses
from dueline.limits import quota_settings, rate, semaphore
from dueline.limits.rate import Rate, check_rate


class Named(Protocol):
    """A task."""

    @property
    def name(self) -> str:
        """The name under which its jobs are stored."""
        ...


class Steering:
    """Pauses of queues, and of tenants and tasks in them; semaphores, rates, quotas."""

    def __init__(self, host: Connection) -> None:
        """Take the application; opens nothing."""
        self._host = host
        self._semaphores: dict[str, int] = {}
        self._rates: dict[str, Rate] = {}
        self._quotas: list[tuple[str, Quota]] = []

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
            semaphore.define(self._host.engine.store, name, capacity, ids=self._host.engine.ids)
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
            rate.define(self._host.engine.store, name, one, ids=self._host.engine.ids)
        else:
            self._rates[name] = one

    def quota(
        self,
        queue: str,
        *,
        tenant: str | None = None,
        each_tenant: bool = False,
        depth: int | None = None,
        rate: int | None = None,
        per: timedelta | float | None = None,
    ) -> None:
        """Let a queue take in no more jobs than so many: all of it, a tenant's, or each one's.

        Calls beyond that raise QuotaExceeded, or wait for room: `using(wait=5)`. Every client
        knows a change within 5 s. Stored at the first use of the store, or now if that was
        before. One of neither depth nor rate is taken away.

        Args:
          tenant: only this one's jobs. each_tenant: those of each tenant, beside such as have
            a quota of their own.
          depth: how many jobs may wait, those for later included.
          rate: how many may be put in in any span of `per`, a timedelta or seconds.

        Raises: BadInput: a name or number out of range.
        """
        new = asked_quota(tenant, depth, rate, per, each_tenant=each_tenant)
        check_queue_name(queue)
        if self._host.is_open:
            quota_settings.put(self._host.engine, queue, new)
        else:
            self._quotas.append((queue, new))

    def store(self, engine: Engine) -> None:
        """Store what was declared before the first use."""
        for queue, quota in self._quotas:
            quota_settings.put(engine, queue, quota)
        for name, capacity in self._semaphores.items():
            semaphore.define(engine.store, name, capacity, ids=engine.ids)
        for name, one in self._rates.items():
            rate.define(engine.store, name, one, ids=engine.ids)

    def pause(
        self, queue: str, *, tenant: str | None = None, task: Named | str | None = None
    ) -> None:
        """Let no job of a queue be claimed, by any worker; or none of a tenant, or of a task.

        Idle workers are told at once, busy ones look four times a second; all know it within
        5 s. Running jobs go on, and so does what a worker has claimed.

        Args: task: a task, or its name.
        """
        pauses.pause(self._host.engine, queue, **_chosen(tenant, task))

    def resume(
        self, queue: str, *, tenant: str | None = None, task: Named | str | None = None
    ) -> None:
        """End a pause: that of the queue, or that of a tenant or of a task."""
        pauses.resume(self._host.engine, queue, **_chosen(tenant, task))


def _chosen(tenant: str | None, task: Named | str | None) -> dict[str, Any]:
    if tenant is not None and task is not None:
        raise BadInput("A pause is of a tenant or of a task.", hint="Pause one after the other.")
    name = task if isinstance(task, str | None) else task.name
    return {
        "tenants": () if tenant is None else (tenant,),
        "tasks": () if name is None else (name,),
    }


def asked_quota(
    tenant: str | None,
    depth: int | None,
    rate: int | None,
    per: timedelta | float | None,
    *,
    each_tenant: bool,
) -> Quota:
    """Read a quota as it was asked for.

    Raises: BadInput: a value out of range, or values that do not go together.
    """
    if tenant is not None and each_tenant:
        raise BadInput("A quota is of one tenant or of each.", hint="Set one after the other.")
    if (rate is None) != (per is None):
        raise BadInput("A rate is so many jobs in a span.", hint="Give rate and per.")
    for name, number in (("depth", depth), ("rate", rate)):
        if number is not None and (type(number) is not int or number < 1):
            raise BadInput(f"{name} is {number!r:.20}.", hint="Leave it out for none.")
    check_tenant(tenant or "")
    return check_quota(
        Quota(
            "each" if each_tenant else "queue" if tenant is None else "tenant",
            tenant or "",
            depth or 0,
            rate or 0,
            0 if per is None else asked_span_us(per, "per"),
        )
    )
