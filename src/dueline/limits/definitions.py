"""What semaphores and rates allow, as a process knows it."""

from collections.abc import Collection, Mapping
from typing import Final

from dueline.core.clock import SECOND_US
from dueline.core.errors import BadInput
from dueline.core.limit_names import has_key, semaphore_of
from dueline.core.store import Records
from dueline.limits import rate, semaphore
from dueline.limits.rate import Rate
from dueline.limits.semaphore import Semaphore

DEFINITIONS_AGE_US: Final = 2 * SECOND_US


class LimitDefinitions:
    """The settings of all limits, read again when they are two seconds old. Threads may share it.

    Attributes:
      has_adaptive: Whether a semaphore is adaptive.
    """

    def __init__(self, records: Records) -> None:
        self._records = records
        self._semaphores: Mapping[str, Semaphore] = {}
        self._rates: Mapping[str, Rate] = {}
        self._read_us: int | None = None
        self.has_adaptive = False

    def refresh(self, now_us: int, age_us: int = DEFINITIONS_AGE_US) -> None:
        """Read the settings, unless they are younger than that."""
        if self._read_us is not None and now_us - self._read_us <= age_us:
            return
        self._rates = rate.rates(self._records)
        # A rate that cannot be read allows nothing: its count is not known.
        damaged = dict.fromkeys(rate.damaged(self._records), Semaphore(0))
        self._semaphores = {**semaphore.settings(self._records), **damaged}
        self.has_adaptive = any(setting.most for setting in self._semaphores.values())
        self._read_us = now_us

    def rate(self, name: str) -> Rate | None:
        """Return the rate of a limit; None for a semaphore."""
        return rate.rate_of(self._rates, name)

    def semaphore(self, name: str) -> Semaphore:
        """Return the setting of a semaphore."""
        return semaphore.setting_of(self._semaphores, name)

    def most(self, name: str) -> int:
        """Return the largest number of units that a job can take of a limit."""
        known = self.rate(name)
        return self.semaphore(name).ceiling if known is None else known.most

    def expect_room(self, costs: Collection[tuple[str, int]], now_us: int) -> None:
        """Check that limits can ever allow what jobs take of them.

        Raises:
            BadInput: A cost is larger than the capacity of its limit.
        """
        self.refresh(now_us)
        if any(units > self.most(name) for name, units in costs):
            self.refresh(now_us, -1)  # this process may just have raised one
        for name, units in costs:
            if units > (most := self.most(name)):
                raise self._too_much(name, units, most)

    def _too_much(self, name: str, units: int, most: int) -> BadInput:
        known, key = self.rate(name), semaphore_of(name)
        if known is None:
            what = f"it has a capacity of {most}"
            hint = f"Raise it: `dueline limits set {key} {units}`, or app.semaphore."
        else:
            what = f"it allows {rate.rate_text(known)}"
            hint = "Split the job, or raise the limit."
        return BadInput(f"A job cannot take {units} of the limit {name}: {what}.", hint=hint)


def expect_kind(records: Records, name: str, *, is_rate: bool) -> None:
    """Check that a key is given what its limit is: a capacity, or a rate.

    Raises:
        BadInput: It is the other.
    """
    if not has_key(name):
        return
    base = semaphore_of(name)
    if base in rate.rates(records) and not is_rate:
        raise BadInput(
            f"{base} is a rate, so its key {name:.80} needs a period.",
            hint=f"Use app.rate, or `dueline limits set {name:.80} N --per 1s`.",
        )
    if is_rate and base in semaphore.settings(records):
        raise BadInput(
            f"{base} is a semaphore, so its key {name:.80} has a capacity and no period.",
            hint=f"Use app.semaphore, or `dueline limits set {name:.80} N`.",
        )
