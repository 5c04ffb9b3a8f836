"""Every order in which the steps of two can come."""

import threading
from collections.abc import Callable, Sequence

WAIT_S = 60
ORDERS_MAX = 20_000

Act = Callable[[], object]


class Turns:
    """Lets one of two threads take its next step; both stand still in between.

    order: who takes the next step where both can, 0 to let the one go on that did, 1 to switch;
    past its end nobody switches. choices: what was chosen, and how many choices there were.
    """

    def __init__(self, order: Sequence[int], switches_max: int) -> None:
        """Take the order, and how often to switch at most."""
        self._order = order
        self._switches_left = switches_max
        self.choices: list[tuple[int, int]] = []
        self._gates = [threading.Semaphore(0), threading.Semaphore(0)]
        self._main = threading.Semaphore(0)
        self._ended = [False, False]
        self._here = threading.local()
        self.errors: list[BaseException] = []

    def step(self, _name: str) -> None:
        """Stand still until it is this thread's turn; in others nothing happens."""
        number = getattr(self._here, "number", None)
        if number is not None:
            self._main.release()
            assert self._gates[number].acquire(timeout=WAIT_S)

    def run(self, acts: Sequence[Act]) -> None:
        """Lead both to their ends."""
        threads = [
            threading.Thread(target=self._lead, args=(number, act), daemon=True)
            for number, act in enumerate(acts)
        ]
        for thread in threads:  # each comes to stand before its first step
            thread.start()
            assert self._main.acquire(timeout=WAIT_S)
        present = 0
        while not all(self._ended):
            if self._ended[present] or (not self._ended[1 - present] and self._choose()):
                present = 1 - present
            self._gates[present].release()
            assert self._main.acquire(timeout=WAIT_S)
        for thread in threads:
            thread.join(timeout=WAIT_S)
        if self.errors:
            raise self.errors[0]

    def _choose(self) -> int:
        choices = 2 if self._switches_left else 1
        place = len(self.choices)
        chosen = self._order[place] if place < len(self._order) else 0
        self.choices.append((chosen, choices))
        self._switches_left -= chosen
        return chosen

    def _lead(self, number: int, act: Act) -> None:
        self._here.number = number
        try:
            self.step("start")
            act()
        except BaseException as error:  # noqa: BLE001  (raised by `run`, in the test's thread)
            self.errors.append(error)
        self._ended[number] = True
        self._main.release()


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
