"""The settings of a worker, checked before its modules are imported."""

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urlsplit

from dueline.core.clock import duration_us
from dueline.core.constraints import Count, CountOrNone, check_value
from dueline.core.errors import BadInput
from dueline.core.queue_settings import check_queue_name
from dueline.core.worker_needs import Has, read_has
from dueline.worker.recycling import RecycleAfter

CONCURRENCY = 16
DRAIN_S = 25.0
MIB = 1024 * 1024
LOOPBACK = "127.0.0.1"


class Plan(NamedTuple):
    """The settings of a worker.

    serving: queues, each with its own slots or None for the shared ones.
    monitor: whether it takes part in the election of the maintenance leader.
    http: address and port of its probes and metrics; None without.
    prefetch: whether it claims jobs before they can start.
    has: labels and units of resources for jobs with needs.
    ends_process: whether the process ends with it, and so do handlers that outlast its drain.
    """

    serving: Mapping[str, int | None]
    concurrency: int
    processes: int
    drain_us: int
    burst: bool
    wear: RecycleAfter
    monitor: bool
    http: tuple[str, int] | None = None
    prefetch: bool = True
    ends_process: bool = False
    has: Has = MappingProxyType({})


def plan_of(
    queues: Mapping[str, int | None] | list[str],
    concurrency: int,
    drain: timedelta | float,
    processes: int,
    *,
    burst: bool = False,
    wear: tuple[int | None, int | None] = (None, None),
    monitor: bool = True,
    http: str | None = None,
    prefetch: bool = True,
    has: Mapping[str, int | str] | None = None,
) -> Plan:
    """Check the settings of a worker. wear: jobs and MiB after which a child is replaced.

    Raises: BadInput: a name or number is out of range.
    """
    if not isinstance(queues, list | Mapping):
        raise BadInput(
            f"`queues` must be a list of names or a dict of slots by name (got {queues!r:.80}).",
            hint='Use ["mail"] or {"mail": 4}.',
        )
    names = dict.fromkeys(queues) if isinstance(queues, list) else dict(queues)
    for name, slots in names.items():
        check_queue_name(name)
        if slots is not None:
            check_value(slots, Count, f"queues[{name!r}]")
    if not names:
        raise BadInput("The worker has no queues to serve.", hint="Name at least one.")
    check_value(concurrency, Count, "concurrency")
    check_value(processes, CountOrNone, "processes")
    if (drain_us := duration_us(drain)) < 0:
        raise BadInput(
            f"`drain` must be 0 or more (got {drain!r}).", hint="Use 0 to release jobs at once."
        )
    for word, value in zip(("recycle_jobs", "recycle_mb"), wear, strict=True):
        if value is not None:
            check_value(value, Count, word)
            if not processes:
                raise BadInput(f"`{word}` needs child processes.", hint="Use processes=1 or more.")
    worn = RecycleAfter(wear[0], wear[1] and wear[1] * MIB)
    address = None if http is None else _http_address(http)
    return Plan(
        names, concurrency, processes, drain_us, burst, worn, monitor and not burst, address,
        prefetch, has=read_has({} if has is None else has),
    )  # fmt: skip


def _http_address(text: str) -> tuple[str, int]:
    """Return the address and port of ADDRESS:PORT; without an address, that of this machine."""
    try:
        parts = urlsplit(f"//:{text}" if text.isdecimal() else f"//{text}")
        host, port = parts.hostname or LOOPBACK, parts.port
    except ValueError:
        port = None
    if port is None or parts.netloc.rpartition("@")[1] or parts.path or parts.query:
        raise BadInput(
            f"`http` must be ADDRESS:PORT (got {text!r:.80}).", hint="Use 127.0.0.1:9465."
        )
    return host, port
