"""Which quotas a queue has, and what was taken of them."""

from dataclasses import replace
from typing import NamedTuple

from dueline.core.engine import Engine
from dueline.core.queue_settings import QueueSettings, Quota, with_quota
from dueline.limits import quota as recipe


class Usage(NamedTuple):
    """A quota, and how many jobs it lets in now; of those of each tenant nothing more is told.

    waiting: how many jobs of it wait at most, None where there is no count. left: None where
    jobs would be counted first.
    """

    quota: Quota
    waiting: int | None = None
    left: int | None = None


def put(engine: Engine, queue: str, quota: Quota) -> QueueSettings:
    """Set a quota of a queue in the place of the one of its scope; one of nothing goes.

    Raises: as `Catalog.change`.
    """
    return engine.catalog.change(
        queue, lambda old: replace(old, quotas=with_quota(old.quotas, quota))
    )


def usage(engine: Engine, queue: str) -> list[Usage]:
    """Read what was taken of all quotas of a queue."""
    found = []
    for one in engine.catalog.settings(queue).quotas:
        if one.scope == "each":
            found.append(Usage(one))
            continue
        used, _ = recipe.read(engine.store, queue, one)
        now_us = engine.time.latest_us()
        waiting = recipe.waiting(used) if one.depth and used.counted_us else None
        is_open = recipe.is_to_be_counted(used, one, 1, now_us)
        found.append(Usage(one, waiting, None if is_open else recipe.left(used, one, now_us)))
    return found
