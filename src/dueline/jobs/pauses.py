"""Pauses a queue, or some of its tenants or tasks.

A pause is a setting of its queue, which every worker reads with the lane lists. From its next poll
on a worker claims nothing that is paused, and defers jobs that are in the way. Jobs that it holds
already run to their end.
"""

from collections.abc import Sequence
from dataclasses import replace

from dueline.core.engine import Engine
from dueline.core.errors import BadInput
from dueline.core.queue_settings import QueueSettings
from dueline.core.validation import check_tenant
from dueline.core.wakeup import Wakeup
from dueline.jobs import circuit_records
from dueline.jobs.paused_tasks import ASIDE_US, requeue


def pause(
    engine: Engine, queue: str, *, tenants: Sequence[str] = (), tasks: Sequence[str] = ()
) -> QueueSettings:
    """Pause a queue, or some of its tenants or tasks: workers stop claiming their jobs.

    Raises:
        BadInput: A name is invalid, or too many are paused; nothing was changed.
    """
    for tenant in tenants:
        check_tenant(tenant)
    if "" in tasks:
        raise BadInput("A task name must not be empty.", hint='Write task="mail.send".')

    circuit_records.forget(engine.store, queue, tasks)

    def change(old: QueueSettings) -> QueueSettings:
        return replace(
            old,
            is_paused=old.is_paused or not (tenants or tasks),
            paused_tenants=tuple(sorted({*old.paused_tenants, *tenants})),
            paused_tasks=tuple(sorted({*old.paused_tasks, *tasks})),
            tripped_tasks=_without(old.tripped_tasks, tasks),  # no probe ends this pause
        )

    settings = engine.catalog.change(queue, change)
    engine.wakeups.wake([Wakeup(queue)])  # idle workers poll, and read the settings
    return settings


def resume(
    engine: Engine, queue: str, *, tenants: Sequence[str] = (), tasks: Sequence[str] = ()
) -> QueueSettings:
    """End the pause of a queue, or of some tenants or tasks; each is ended by itself.

    Deferred jobs of the tasks are requeued. If this is interrupted, the other jobs become due by
    themselves, and a repeat continues with the rest.
    """
    circuit_records.forget(engine.store, queue, tasks)

    def change(old: QueueSettings) -> QueueSettings:
        return replace(
            old,
            is_paused=old.is_paused and bool(tenants or tasks),
            paused_tenants=_without(old.paused_tenants, tenants),
            paused_tasks=_without(old.paused_tasks, tasks),
            tripped_tasks=_without(old.tripped_tasks, tasks),
        )

    settings = engine.catalog.change(queue, change)
    _resumed(engine, queue, tasks)
    return settings


def hold(engine: Engine, queue: str, task: str) -> bool:
    """Pause a task whose circuit is open; return False if an operator has paused it."""

    def change(old: QueueSettings) -> QueueSettings:
        if task in old.paused_tasks:
            return old
        return replace(
            old,
            paused_tasks=tuple(sorted({*old.paused_tasks, task})),
            tripped_tasks=tuple(sorted({*old.tripped_tasks, task})),
        )

    settings = engine.catalog.change(queue, change)
    engine.wakeups.wake([Wakeup(queue)])
    return task in settings.tripped_tasks


def release(engine: Engine, queue: str, task: str) -> None:
    """Resume a task that paused itself."""

    def change(old: QueueSettings) -> QueueSettings:
        if task not in old.tripped_tasks:
            return old
        return replace(
            old,
            paused_tasks=_without(old.paused_tasks, (task,)),
            tripped_tasks=_without(old.tripped_tasks, (task,)),
        )

    engine.catalog.change(queue, change)
    _resumed(engine, queue, (task,))


def _without(names: tuple[str, ...], gone: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in gone)


def _resumed(engine: Engine, queue: str, tasks: Sequence[str]) -> None:
    """Requeue the deferred jobs of tasks, and wake workers."""
    if tasks:
        since_us = engine.time.earliest_us() - 2 * ASIDE_US
        requeue(engine, engine.lanes_of(queue), frozenset(tasks), since_us)
    engine.wakeups.wake([Wakeup(queue)])
