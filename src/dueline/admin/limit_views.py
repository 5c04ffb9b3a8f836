"""Semaphores and rates, as people see them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dueline.limits.rate import Rate, rate_text
from dueline.limits.semaphore import Semaphore
from dueline.limits.usage import LimitUsage, RateUsage, adaptive_text

METERS_MAX: Final = 100
"""Maximum number of keys of a rate that are read."""


@dataclass(frozen=True, slots=True)
class LimitSummary:
    """A semaphore with its usages by key, or a rate.

    Attributes:
      is_set: Whether its capacity was set; otherwise jobs only name it.
      usages: Keys that are held, waited for or closed; none for a rate.
      meters: Of a rate, the first METERS_MAX keys that were used lately.
      setting: Of a semaphore; None where jobs only name it.
    """

    name: str
    capacity: int
    is_set: bool
    usages: Sequence[LimitUsage] = ()
    rate: Rate | None = None
    meters: Sequence[RateUsage] = ()
    setting: Semaphore | None = None

    @property
    def text(self) -> str:
        """The rate or the capacity, in words."""
        if self.rate is not None:
            return f"rate: {rate_text(self.rate)}"
        if self.setting is not None and self.setting.most:
            return f"semaphore, adaptive: {adaptive_text(self.setting, self.usages)}"
        return f"semaphore, capacity {self.capacity}{'' if self.is_set else ' (not set)'}"

    @property
    def held(self) -> int:
        """Number of permits that are held."""
        return sum(usage.held for usage in self.usages)

    @property
    def waiting(self) -> int:
        """Number of workers that wait for permits."""
        return len({worker for usage in self.usages for worker in usage.waiting})
