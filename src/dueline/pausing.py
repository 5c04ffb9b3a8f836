"""Pauses of a queue, and of some of its jobs.

A pause is a setting of its queue, which every worker reads with the lane lists: it claims nothing
of what is paused from its next look on. What it holds already runs to its end.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from dueline.limits import check_tenant
from dueline.queue import Queues
from dueline.settings import QueueSettings


def pause(queues: Queues, queue: str, *, tenants: Sequence[str] = ()) -> QueueSettings:
    """Let no job of a queue be claimed, or none of some tenants.

    Raises: BadInput: that is no name, or too many are paused; nothing was changed.
    """
    for tenant in tenants:
        check_tenant(tenant)

    def change(old: QueueSettings) -> QueueSettings:
        if not tenants:
            return replace(old, is_paused=True)
        return replace(old, paused_tenants=tuple(sorted({*old.paused_tenants, *tenants})))

    return _change(queues, queue, change)


def resume(queues: Queues, queue: str, *, tenants: Sequence[str] = ()) -> QueueSettings:
    """End the pause of a queue, or that of some tenants; each is ended by itself."""

    def change(old: QueueSettings) -> QueueSettings:
        if not tenants:
            return replace(old, is_paused=False)
        left = [one for one in old.paused_tenants if one not in tenants]
        return replace(old, paused_tenants=tuple(left))

    return _change(queues, queue, change)


def _change(
    queues: Queues, queue: str, change: Callable[[QueueSettings], QueueSettings]
) -> QueueSettings:
    settings = queues.catalog.change(queue, change)
    queues.waker.wake([queue])  # who is idle reads the settings when it looks
    return settings
