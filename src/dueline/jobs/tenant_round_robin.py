"""Round-robin over tenants, and over the sets of limits of each."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from dueline.core.lane import LIMIT_MARK, Lane, tenant_of

T = TypeVar("T")

Kind = tuple[int, str]
"""A priority and a tenant; tenants of one priority take turns."""

_Limits = OrderedDict[str, None]


class RoundRobin:
    """The tenants of one priority, as lanes name them: each with the limits of its jobs.

    A tenant with many keys has no more turns than one with a single job; its keys take turns within
    its own. Most tenants have no limits, and cost no more if others have some.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._tenants: OrderedDict[str, _Limits | None] = OrderedDict()  # None: without limits
        self.add(names)

    def __bool__(self) -> bool:
        """Return whether there is any tenant."""
        return bool(self._tenants)

    def __contains__(self, name: str) -> bool:
        """Return whether a name takes turns."""
        limits = self._tenants.get(name, _NOBODY)
        if limits is None:  # as for most
            return True
        limits = self._tenants.get(name.partition(LIMIT_MARK)[0])
        return limits is not None and name in limits

    def __iter__(self) -> Iterator[str]:
        """Yield one name of each tenant, the longest waiting first; then one more of each."""
        more: list[Iterator[str]] = []
        for tenant, limits in self._tenants.items():
            if limits is None:
                yield tenant
            else:
                more.append(iter(limits))
                yield next(more[-1])
        while more:
            left = []
            for names in more:
                name = next(names, None)
                if name is not None:
                    yield name
                    left.append(names)
            more = left

    def add(self, names: Iterable[str]) -> None:
        """Add names that are not there, behind all others."""
        tenants = self._tenants
        for name in names:
            if LIMIT_MARK not in name:
                limits = tenants.setdefault(name)
                if limits is not None:
                    limits.setdefault(name)
                continue
            tenant = name.partition(LIMIT_MARK)[0]
            is_known = tenant in tenants
            limits = tenants.get(tenant)
            if limits is None:
                limits = tenants[tenant] = OrderedDict.fromkeys([tenant] if is_known else [])
            limits.setdefault(name)

    def had(self, name: str) -> None:
        """Move a name that had its turn behind all others."""
        if self._tenants.get(name, _NOBODY) is None:
            self._tenants.move_to_end(name)
            return
        tenant = name.partition(LIMIT_MARK)[0]
        limits = self._tenants[tenant]
        self._tenants.move_to_end(tenant)
        if limits is not None:
            limits.move_to_end(name)

    def remove(self, name: str) -> None:
        """Remove a name."""
        if self._tenants.get(name, _NOBODY) is None:
            del self._tenants[name]
            return
        tenant = name.partition(LIMIT_MARK)[0]
        limits = self._tenants[tenant]
        if limits is not None:
            del limits[name]
        if not limits:
            del self._tenants[tenant]


_NOBODY: _Limits = OrderedDict()


def interleaved(jobs: Sequence[T], lanes: Sequence[Lane]) -> list[T]:
    """Let tenants of one priority take turns among claimed jobs.

    A claim goes lane by lane, so otherwise all jobs of one tenant would start before those of the
    next. The jobs of a tenant stay in their order.

    Args:
        jobs: The jobs.
        lanes: The lane of each.
    """
    return in_turns(jobs, lanes, lambda _, number: number)


def in_turns(
    jobs: Sequence[T], lanes: Sequence[Lane], turn_of: Callable[[Kind, int], float]
) -> list[T]:
    """Order the claimed jobs of each priority by turns; those of one turn as they were claimed.

    Args:
        jobs: The jobs.
        lanes: The lane of each.
        turn_of: Returns the turn of a tenant's job; takes its number among those of the tenant.
    """
    kinds = {(lane.priority, tenant_of(lane)) for lane, _ in groupby(lanes)}
    if len(kinds) <= 1:
        return [*jobs]
    ordered: list[T] = []
    for priority, pairs in groupby(zip(jobs, lanes, strict=True), key=_priority_of):
        run = list(pairs)
        seen = Counter[str]()
        places: list[tuple[float, int]] = []
        for number, (_, lane) in enumerate(run):
            tenant = tenant_of(lane)
            places.append((turn_of((priority, tenant), seen[tenant]), number))
            seen[tenant] += 1
        ordered += [run[number][0] for _, number in sorted(places)]
    return ordered


def _priority_of(pair: tuple[object, Lane]) -> int:
    return pair[1].priority
