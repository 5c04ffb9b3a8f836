"""How a worker is to work, before anything of it is loaded."""

from collections.abc import Mapping
from datetime import timedelta
from typing import NamedTuple

from dueline.core.clock import duration_us
from dueline.core.errors import BadInput
from dueline.core.queue_settings import check_queue_name
from dueline.worker.recycling import RecycleAfter

CONCURRENCY = 16
DRAIN_S = 25.0
MIB = 1024 * 1024


class Plan(NamedTuple):
    """How a worker is to work. serving: queues, each with its slots or None for common ones.

    monitor: whether it stands for the monitor's office.
    """

    serving: Mapping[str, int | None]
    concurrency: int
    processes: int
    drain_us: int
    burst: bool
    wear: RecycleAfter
    monitor: bool


def plan_of(
    queues: Mapping[str, int | None] | list[str],
    concurrency: int,
    drain: timedelta | float,
    processes: int,
    *,
    burst: bool = False,
    wear: tuple[int | None, int | None] = (None, None),
    monitor: bool = True,
) -> Plan:
    """Check how a worker is to work. wear: jobs and MiB after which a child is replaced.

    Raises: BadInput: a name or number out of range.
    """
    if not isinstance(queues, list | Mapping):
        raise BadInput("queues is a list of names, or their slots by name.")
    names = dict.fromkeys(queues) if isinstance(queues, list) else dict(queues)
    for name, slots in names.items():
        check_queue_name(name)
        if slots is not None and not _is_count(slots, least=1):
            raise BadInput(f"The queue {name} has {slots!r} slots.", hint="Use 1 or more.")
    if not names:
        raise BadInput("The worker has no queues to serve.", hint="Name at least one.")
    if not _is_count(concurrency, least=1) or not _is_count(processes, least=0):
        raise BadInput("concurrency is at least 1, processes at least 0.")
    if (drain_us := duration_us(drain)) < 0:
        raise BadInput(f"drain={drain!r} is negative.", hint="Use 0 to give back at once.")
    for word, value in zip(("recycle_jobs", "recycle_mb"), wear, strict=True):
        if value is not None and not (_is_count(value, least=1) and processes):
            raise BadInput(
                f"{word} is {value!r} with {processes} processes.",
                hint="Use 1 or more, and child processes (processes=).",
            )
    worn = RecycleAfter(wear[0], wear[1] and wear[1] * MIB)
    return Plan(names, concurrency, processes, drain_us, burst, worn, monitor and not burst)


def _is_count(value: object, *, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
