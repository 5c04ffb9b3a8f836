"""Every order in which the steps of two can come."""

from collections.abc import Callable, Sequence

from greenlet import getcurrent, greenlet

ORDERS_MAX = 20_000

Act = Callable[[], object]


class Turns:
    """Let one of two acts take its next step; both stand still in between.

    The acts are greenlets of one thread: an order takes no time for switches between threads, and
    a lock that is held at a step must not be wanted by the other act, which would wait for ever.

    order: who takes the next step where both can, 0 to let the one go on that did, 1 to switch;
    past its end nobody switches. choices: what was chosen, and how many choices there were.
    """

    def __init__(self, order: Sequence[int], switches_max: int) -> None:
        self._order = order
        self._switches_left = switches_max
        self.choices: list[tuple[int, int]] = []
        self._acts: list[greenlet] = []
        self._main = getcurrent()

    def step(self, _name: str) -> None:
        """Stand still until it is this act's turn; elsewhere nothing happens."""
        if getcurrent() in self._acts:
            self._main.switch()

    def run(self, acts: Sequence[Act]) -> None:
        """Run both to their ends; raise the first error of either, once both have ended."""
        errors: list[BaseException] = []

        def run_one(act: Act) -> None:
            try:
                self.step("start")
                act()
            except BaseException as error:  # noqa: BLE001  (raised below, by the test itself)
                errors.append(error)

        self._main = getcurrent()
        self._acts = [greenlet(run_one) for _ in acts]
        for fiber, act in zip(self._acts, acts, strict=True):  # each stops before its first step
            fiber.switch(act)
        present = 0
        while not all(fiber.dead for fiber in self._acts):
            if self._acts[present].dead or (not self._acts[1 - present].dead and self._choose()):
                present = 1 - present
            self._acts[present].switch()
        if errors:
            raise errors[0]

    def _choose(self) -> int:
        choices = 2 if self._switches_left else 1
        place = len(self.choices)
        chosen = self._order[place] if place < len(self._order) else 0
        self.choices.append((chosen, choices))
        self._switches_left -= chosen
        return chosen


def every_order(lead: Callable[[Turns], object], *, switches_max: int = 1000) -> int:
    """Lead two through every order of their steps; return how many orders there were.

    Args:
      lead: sets everything up anew, and runs two acts by the turns that it is given.
      switches_max: how often one takes over from the other, beside at its end.
    """
    order: list[int] = []
    for count in range(1, ORDERS_MAX):
        turns = Turns(order, switches_max)
        lead(turns)
        choices = turns.choices
        while choices and choices[-1][0] == choices[-1][1] - 1:
            choices.pop()
        if not choices:
            return count
        order = [*(chosen for chosen, _ in choices[:-1]), choices[-1][0] + 1]
    raise AssertionError("there are too many orders")
