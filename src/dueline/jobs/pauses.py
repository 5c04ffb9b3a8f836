"""Pauses of a queue, and of some of its jobs.

A pause is a setting of its queue, which every worker reads with the lane lists: it claims nothing
of what is paused from its next look on, and sets aside what is in the way. What it holds already
runs to its end.
"""

from collections.abc import Sequence
from dataclasses import replace

from dueline.core.engine import Engine
from dueline.core.errors import BadInput
from dueline.core.queue_settings import QueueSettings
from dueline.core.validation import check_tenant
from dueline.jobs.paused_tasks import ASIDE_US, requeue


def pause(
    engine: Engine, queue: str, *, tenants: Sequence[str] = (), tasks: Sequence[str] = ()
) -> QueueSettings:
    """Let no job of a queue be claimed, or none of some tenants, or run none of some tasks.

    Raises: BadInput: that is no name, or too many are paused; nothing was changed.
    """
    for tenant in tenants:
        check_tenant(tenant)
    if "" in tasks:
        raise BadInput("A task has a name.", hint='Write task="mail.send".')

    def change(old: QueueSettings) -> QueueSettings:
        return replace(
            old,
            is_paused=old.is_paused or not (tenants or tasks),
            paused_tenants=tuple(sorted({*old.paused_tenants, *tenants})),
            paused_tasks=tuple(sorted({*old.paused_tasks, *tasks})),
        )

    settings = engine.catalog.change(queue, change)
    engine.wakeups.wake([queue])  # who is idle reads the settings when it looks
    return settings


def resume(
    engine: Engine, queue: str, *, tenants: Sequence[str] = (), tasks: Sequence[str] = ()
) -> QueueSettings:
    """End the pause of a queue, or that of some tenants or tasks; each is ended by itself.

    Jobs of the tasks are brought back to their places. What this does not come to comes back by
    itself, and a repeat goes on with the rest.
    """

    def change(old: QueueSettings) -> QueueSettings:
        return replace(
            old,
            is_paused=old.is_paused and bool(tenants or tasks),
            paused_tenants=tuple(one for one in old.paused_tenants if one not in tenants),
            paused_tasks=tuple(one for one in old.paused_tasks if one not in tasks),
        )

    settings = engine.catalog.change(queue, change)
    if tasks:
        since_us = engine.time.earliest_us() - 2 * ASIDE_US
        requeue(engine, engine.lanes_of(queue), frozenset(tasks), since_us)
    engine.wakeups.wake([queue])
    return settings
