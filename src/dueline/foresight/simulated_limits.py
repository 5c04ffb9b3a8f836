"""Semaphores and rates of a simulation, by the rules that workers use."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from dueline.core.limit_names import semaphore_of
from dueline.foresight.scenario import Rules
from dueline.limits import rate, semaphore
from dueline.limits.permits import RETRY_US
from dueline.limits.rate import Meter
from dueline.limits.semaphore import CAPACITY_DEFAULT, Hold, PermitRequest, Permits

FOREVER_US: Final = 1 << 62


class SimulatedLimits:
    """The permits of all workers, and the meters of rates."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._permits: dict[str, Permits] = {}
        self._meters: dict[str, Meter] = {}
        self._used: Counter[tuple[str, str]] = Counter()
        self._since_us: dict[tuple[str, str, int], int] = {}

    def take(
        self, worker: str, limits: Sequence[str], wish: tuple[int, int, str], now_us: int
    ) -> tuple[int, Sequence[str], int]:
        """Take permits as `HeldPermits.take` does.

        Args:
            worker: Name of the worker.
            limits: The limits.
            wish: Number of jobs, their priority and their queue.
            now_us: The time.

        Returns:
            For how many jobs; if for none, which limits refused, and when to ask them again.
        """
        count, priority, queue = wish
        rates = [name for name in limits if semaphore_of(name) in self._rules.rates]
        for name in rates:
            limit = self._rules.rates[semaphore_of(name)]
            meter = self._meters.get(name, Meter())
            count = min(count, rate.left(meter, limit, now_us))
            if count <= 0:
                return 0, (name,), max(now_us + 1, rate.next_us(meter, limit, now_us))
        others = [name for name in limits if name not in rates]
        requests: dict[str, PermitRequest] = {}
        for name in others:
            since_us = self._since_us.setdefault((worker, name, priority), now_us)
            request = PermitRequest(count, priority, since_us, queue)
            requests[name] = request
            permits = self._permits.get(name, Permits())
            free = semaphore.spare(permits, self._capacity(name), worker, request, now_us)
            free -= self._used[worker, name]
            if free <= 0:
                if permits.in_use(now_us) > self._used[worker, name]:
                    waits = semaphore.with_wait(permits, worker, request, now_us)
                    self._permits[name] = waits or permits
                return 0, (name,), now_us + RETRY_US
            count = min(count, free)
        for name in others:
            del self._since_us[worker, name, priority]
            permits = semaphore.after_turn(
                self._permits.get(name, Permits()), worker, requests[name], now_us
            )
            self._used[worker, name] += count
            self._hold(name, permits, worker, now_us)
        for name in rates:
            limit = self._rules.rates[semaphore_of(name)]
            meter = self._meters.get(name, Meter())
            self._meters[name] = rate.after_taking(meter, limit, count, now_us)
        return count, (), 0

    def release(self, worker: str, limits: Sequence[str], now_us: int) -> list[str]:
        """Release the permits of an ended job; return the workers to wake."""
        woken: list[str] = []
        for name in limits:
            if semaphore_of(name) in self._rules.rates:
                continue
            self._used[worker, name] -= 1
            permits = self._hold(name, self._permits[name], worker, now_us)
            free = self._capacity(name) - permits.in_use(now_us)
            woken += semaphore.next_in_turn(permits, free, worker, now_us)
        return woken

    def _hold(self, name: str, permits: Permits, worker: str, now_us: int) -> Permits:
        hold = Hold(self._used[worker, name], FOREVER_US)
        held = self._permits[name] = semaphore.with_hold(permits, worker, hold, now_us)
        return held

    def _capacity(self, name: str) -> int:
        return self._rules.capacities.get(semaphore_of(name), CAPACITY_DEFAULT)
