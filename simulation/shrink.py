"""Reduction of a failing run to the simplest tape with the same verdict.

A tape of zeros is a run without faults, so setting a choice to 0 removes it. First the tail is cut
by halves, then blocks of choices are zeroed, then single choices are lowered. A candidate is kept
if the verdict remains.
"""

import time
from collections.abc import Callable, Sequence

from simulation.life import Life
from simulation.lives import live

LIVES_MAX = 600
SECONDS_MAX = 120.0


class Shrinker:
    """Searches for simpler tapes of one seed, within a number of runs and seconds."""

    def __init__(
        self,
        life: Life,
        *,
        verdict: str,
        lives_max: int = LIVES_MAX,
        seconds_max: float = SECONDS_MAX,
        lead: Callable[[int, Sequence[int]], Life] = live,
    ) -> None:
        """Take a failing run, and the verdict to keep."""
        self.life = life
        self.lives = 0
        self._tape = list(life.tape)
        self._verdict = verdict
        self._lives_max = lives_max
        self._until_s = time.process_time() + seconds_max
        self._lead = lead

    def shrink(self) -> Life:
        """Return the simplest run that was found."""
        self._cut()
        size = max(1, len(self._tape) // 2)
        while size:
            self._zero(size)
            size //= 2
        self._cut()
        self._lower()
        return self.life

    def _try(self, tape: Sequence[int]) -> bool:
        """Keep a tape if the verdict remains."""
        if self.lives >= self._lives_max or time.process_time() > self._until_s:
            return False
        self.lives += 1
        life = self._lead(self.life.seed, tape)
        if self._verdict not in life.faults:
            return False
        self.life = life
        self._tape = list(tape)
        return True

    def _cut(self) -> None:
        """Cut the tail, by halves."""
        size = len(self._tape) // 2
        while size:
            if not self._try(self._tape[:-size]):
                size //= 2
            else:
                size = min(size, len(self._tape) // 2)
        while self._tape and not self._tape[-1]:
            self._tape.pop()

    def _zero(self, size: int) -> None:
        """Zero choices, block by block, the last first."""
        end = len(self._tape)
        while end > 0:
            start = max(0, end - size)
            if any(self._tape[start:end]):
                self._try([*self._tape[:start], *[0] * (end - start), *self._tape[end:]])
            end = start

    def _lower(self) -> None:
        """Make single choices smaller."""
        for place, chosen in enumerate(list(self._tape)):
            if chosen > 1 and place < len(self._tape):
                self._try([*self._tape[:place], chosen // 2, *self._tape[place + 1 :]])
