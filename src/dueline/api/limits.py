"""Methods of an application for pauses, semaphores, rates and quotas."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

from dueline.api.code_changes import recorded_change
from dueline.api.connection import Connection
from dueline.core.clock import Clock, asked_span_us
from dueline.core.constraints import Count, check_value
from dueline.core.errors import BadInput
from dueline.core.queue_settings import Quota, check_queue_name, check_quota
from dueline.core.validation import check_tenant
from dueline.jobs import pauses
from dueline.jobs.queue import Queues
from dueline.limits import rate, semaphore
from dueline.limits.definitions import expect_kind
from dueline.limits.quota import set_quota
from dueline.limits.rate import Rate, check_rate
from dueline.limits.semaphore import Semaphore, check_setting


class Named(Protocol):
    """A task."""

    @property
    def name(self) -> str:
        """The name under which its jobs are stored."""
        ...


class LimitMethods(Connection):
    """Methods of an application for pauses, semaphores, rates and quotas."""

    def __init__(self, url: str | None = None, *, clock: Clock | None = None) -> None:
        super().__init__(url, clock=clock)
        self._semaphores: dict[str, Semaphore] = {}
        self._rates: dict[str, Rate] = {}
        self._quotas: list[tuple[str, Quota]] = []

    def semaphore(
        self,
        name: str,
        *,
        capacity: int,
        keys: Mapping[str, int] | None = None,
        adaptive: tuple[int, int] | None = None,
        latency: timedelta | float | None = None,
    ) -> None:
        """Limit how many jobs run at the same time, across all workers.

        The limit applies to jobs that use this semaphore. A limit with a key, such as
        "host:{host}", has this capacity for each key that has no capacity of its own. A semaphore
        that is not declared has a capacity of 1. Workers apply a change within two seconds; running
        jobs continue.
        The semaphore is stored when the store is first used, or immediately if it is open.

        Args:
            name: Name of the semaphore, or one key of it, such as "plan:gold".
            capacity: Maximum number of jobs that run at the same time; 0 runs none. A job that
                takes several units counts as several jobs.
            keys: Capacities of some keys, such as {"gold": 10}.
            adaptive: Bounds of a capacity that workers adapt, from `capacity` on: it grows by one
                after as many successes as it allows jobs, if all of it is in use, and shrinks by a
                third when a handler raises Throttled or fails with a timeout.
            latency: Duration, a timedelta or seconds; a job that runs longer lowers an adaptive
                capacity too.

        Raises:
            BadInput: The name or the capacity is out of range, or its keys have rates.
        """
        latency_us = 0 if latency is None else asked_span_us(latency, "latency")
        if latency_us and adaptive is None:
            raise BadInput(
                "`latency` needs `adaptive`.", hint="Use adaptive=(1, 50) with latency=2."
            )
        self._set_semaphore(name, check_setting(name, capacity, adaptive, latency_us))
        for key, most in (keys or {}).items():
            self._set_semaphore(f"{name}:{key}", check_setting(f"{name}:{key}", most))

    def _set_semaphore(self, name: str, setting: Semaphore) -> None:
        if self.is_open:
            expect_kind(self.engine.store, name, is_rate=False)
            with recorded_change(self.queues, f"set capacity {setting.capacity}", name):
                semaphore.define(self.engine.store, name, setting, ids=self.engine.ids)
        else:
            self._semaphores[name] = setting

    def rate(
        self, name: str, count: int, *, per: timedelta | float, burst: int | None = None
    ) -> None:
        """Limit how many jobs start in a period, across all workers.

        The limit applies to jobs that use this rate. A limit with a key, such as "host:{host}",
        has this rate for each key that has no rate of its own. Workers apply a change within two
        seconds.
        The rate is stored when the store is first used, or immediately if it is open.

        Args:
            name: Name of the rate, or one key of it, such as "llm:acme".
            count: Maximum number of jobs that start in a period. A job that takes several units
                counts as several jobs.
            per: Duration of the period, a timedelta or seconds.
            burst: None for at most `count` starts in any period of this duration. Otherwise jobs
                start evenly, one each `per / count`, and up to `burst` at once after a pause.

        Raises:
            BadInput: The name or a number is out of range.
        """
        checked = check_rate(name, count, asked_span_us(per, "per"), burst)
        if self.is_open:
            expect_kind(self.engine.store, name, is_rate=True)
            with recorded_change(self.queues, f"set rate {count}", name):
                rate.define(self.engine.store, name, checked, ids=self.engine.ids)
        else:
            self._rates[name] = checked

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
        """Limit how many jobs a queue, one tenant or each tenant may enqueue.

        Calls above the quota raise QuotaExceeded, or wait for room with `using(wait=5)`. Clients
        apply a change within five seconds. A quota with neither depth nor rate is removed.
        The quota is stored when the store is first used, or immediately if it is open.

        Args:
            queue: Name of the queue.
            tenant: Limit the jobs of this tenant only.
            each_tenant: Limit the jobs of each tenant that has no quota of its own.
            depth: Maximum number of waiting jobs, including jobs that are due later.
            rate: Maximum number of jobs that are enqueued in any period of `per`.
            per: Duration of the period, a timedelta or seconds.

        Raises:
            BadInput: The name or a number is out of range.
        """
        quota = asked_quota(tenant, depth, rate, per, each_tenant=each_tenant)
        check_queue_name(queue)
        if self.is_open:
            with recorded_change(self.queues, "set quota", queue):
                set_quota(self.engine, queue, quota)
        else:
            self._quotas.append((queue, quota))

    def pause(
        self, queue: str, *, tenant: str | None = None, task: Named | str | None = None
    ) -> None:
        """Pause a queue, or one tenant or task in it.

        Workers stop claiming its jobs. Idle workers are notified immediately, busy ones check
        four times a second, and all apply the pause within five seconds. Running jobs and jobs
        that a worker has claimed finish.

        Args:
            queue: Name of the queue.
            tenant: Pause the jobs of this tenant only.
            task: Pause the jobs of this task only; a task or its name.

        Raises:
            BadInput: A name is invalid, or both a tenant and a task are given.
        """
        chosen = _chosen(tenant, task)
        with recorded_change(self.queues, "pause queue", _target(queue, chosen)):
            pauses.pause(self.engine, queue, **chosen)

    def resume(
        self, queue: str, *, tenant: str | None = None, task: Named | str | None = None
    ) -> None:
        """Resume a queue, or one tenant or task in it.

        Args:
            queue: Name of the queue.
            tenant: End the pause of this tenant only.
            task: End the pause of this task only; a task or its name.

        Raises:
            BadInput: A name is invalid, or both a tenant and a task are given.
        """
        chosen = _chosen(tenant, task)
        with recorded_change(self.queues, "resume queue", _target(queue, chosen)):
            pauses.resume(self.engine, queue, **chosen)

    def declare(self, queues: Queues) -> None:
        """Store the limits and quotas that were declared before the first use."""
        super().declare(queues)
        engine = queues.engine
        for queue, quota in self._quotas:
            set_quota(engine, queue, quota)
        for name, setting in sorted(self._semaphores.items()):
            expect_kind(engine.store, name, is_rate=False)
            semaphore.define(engine.store, name, setting, ids=engine.ids)
        for name, declared in sorted(self._rates.items()):
            expect_kind(engine.store, name, is_rate=True)
            rate.define(engine.store, name, declared, ids=engine.ids)


def _chosen(tenant: str | None, task: Named | str | None) -> dict[str, Any]:
    if tenant is not None and task is not None:
        raise BadInput(
            "A pause applies to one tenant or to one task, not to both.",
            hint="Pass `tenant` or `task`.",
        )
    name = task if isinstance(task, str | None) else task.name
    return {
        "tenants": () if tenant is None else (tenant,),
        "tasks": () if name is None else (name,),
    }


def _target(queue: str, chosen: Mapping[str, Sequence[str]]) -> str:
    """Return what a pause is of, for the record of changes."""
    parts = (f"{word}={name}" for word, names in chosen.items() for name in names)
    return ", ".join([queue, *parts])


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
        raise BadInput(
            "A quota applies to one tenant or to each tenant, not to both.",
            hint="Pass `tenant` or `each_tenant`.",
        )
    if (rate is None) != (per is None):
        raise BadInput("A rate needs both `rate` and `per`.", hint="Use rate=100, per=60.")
    for name, number in (("depth", depth), ("rate", rate)):
        if number is not None:
            check_value(number, Count, name)
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
