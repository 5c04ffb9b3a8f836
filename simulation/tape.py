"""All choices of a run, in order."""

import random
from collections.abc import Sequence


class Tape:
    """Source of choices: those of a given tape, or derived from a seed.

    0 is always the choice without a fault, so a tape of zeros is a run without faults, and a
    shorter tape is a simpler run.
    """

    def __init__(self, seed: int, given: Sequence[int] | None = None) -> None:
        """Take the seed; or a tape, past whose end every choice is 0."""
        self._random = random.Random(seed).random
        self._given = given
        self.taken: list[int] = []

    def pick(self, count: int) -> int:
        """Choose one of 0 to `count - 1`."""
        if self._given is None:
            chosen = int(self._random() * count)
        else:
            place = len(self.taken)
            chosen = self._given[place] % count if place < len(self._given) else 0
        self.taken.append(chosen)
        return chosen

    def is_rare(self, one_in: int) -> bool:
        """Return True once in `one_in` times on average."""
        return self.pick(one_in) == one_in - 1
