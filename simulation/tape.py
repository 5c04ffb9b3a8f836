"""Every choice of a life, in order."""

import random
from collections.abc import Sequence


class Tape:
    """Gives choices: those of a given tape while it lasts, or made from a seed.

    0 is always the dull choice, so that a tape of zeros is a life without accidents, and a
    shorter tape is a simpler one.
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
        """Say yes once in so many times."""
        return self.pick(one_in) == one_in - 1
