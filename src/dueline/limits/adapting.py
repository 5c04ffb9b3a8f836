"""Capacities that adapt to the answers of a server (rule N11)."""

from collections.abc import Sequence
from typing import Final

from dueline.core.attempt import Done, Ended, Failed, Snoozed
from dueline.core.engine import Engine
from dueline.core.errors import StoreCorrupt
from dueline.core.lane import limits_of
from dueline.core.logging import log
from dueline.limits import semaphore
from dueline.limits.definitions import LimitDefinitions
from dueline.limits.semaphore import Permits, Semaphore

_ROUNDS_MAX: Final = 20


class _Answers:
    """What jobs of an adaptive limit met since its capacity was last considered.

    good: successes. bad_us: when the last job was claimed that met a server with too much to do.
    needed: how many successes it takes to consider it again.
    """

    __slots__ = ("bad_us", "good", "needed")

    def __init__(self) -> None:
        self.good, self.bad_us, self.needed = 0, 0, 1


class AdaptiveCapacities:
    """What one worker finds out about its adaptive limits, and writes for all workers."""

    def __init__(self, engine: Engine, known: LimitDefinitions) -> None:
        self._engine = engine
        self._known = known
        self._answers: dict[str, _Answers] = {}

    def note(self, ended: Sequence[Ended]) -> None:
        """Note how attempts ended."""
        if not self._known.has_adaptive:
            return
        for attempt in ended:
            for name in limits_of(attempt.job.lane):
                setting = self._known.semaphore(name)
                if not setting.most or self._known.rate(name) is not None:
                    continue
                answers = self._answers.setdefault(name, _Answers())
                if _is_overload(attempt, setting):
                    answers.bad_us = max(answers.bad_us, attempt.job.claimed_us)
                elif isinstance(attempt.ending, Done):
                    answers.good += 1

    def adapt(self) -> None:
        """Raise or lower capacities, before permits of ended jobs are released."""
        for name, answers in self._answers.items():
            if answers.bad_us or answers.good >= answers.needed:
                try:
                    self._adapt(name, answers)
                except StoreCorrupt as error:
                    log.warning("the capacity of %s cannot be adapted: %s", name, error)
                    answers.good = answers.bad_us = 0

    def _adapt(self, name: str, answers: _Answers) -> None:
        """Lower a capacity once for the jobs that ran when it was; raise it while all is in use."""
        setting = self._known.semaphore(name)
        for _ in range(_ROUNDS_MAX):
            permits, version = semaphore.read(self._engine.store, name)
            capacity = semaphore.capacity_now(permits, setting)
            is_enough = answers.good >= capacity
            changed: Permits | None = None
            if answers.bad_us > permits.cut_us:
                changed = semaphore.cut(permits, setting, self._engine.time.latest_us())
            elif is_enough and capacity < setting.most:
                in_use = permits.in_use(self._engine.time.earliest_us())
                changed = semaphore.raised(permits, setting) if in_use >= capacity else None
            if changed is None or semaphore.write(
                self._engine.store, name, changed, expect=version, ids=self._engine.ids
            ):
                if answers.bad_us or is_enough:
                    answers.good = 0
                answers.bad_us, answers.needed = 0, capacity
                return


def _is_overload(attempt: Ended, setting: Semaphore) -> bool:
    """Return whether a job met a server that had too much to do, or took too long."""
    ending = attempt.ending
    if isinstance(ending, Snoozed):
        return ending.throttles
    if isinstance(ending, Failed):
        return ending.error_type.endswith(("Timeout", "TimeoutError"))
    took_us = attempt.ended_us - attempt.started_us
    return isinstance(ending, Done) and 0 < setting.latency_us < took_us and attempt.started_us > 0
