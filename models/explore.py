"""Exploration of every interleaving, breadth first.

A model has a start state, the possible next steps, and a check for faults. Every process may stop
anywhere, so crashes, pauses and lost messages need no steps: the other processes continue.
"""

import gc
import time
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

STATES_MAX = 2_000_000

State = TypeVar("State", bound=Hashable)
Item = TypeVar("Item")

Steps = Iterable[tuple[str, State]]
"""Possible next steps: a description, and the state after it."""


class Model(Protocol[State]):
    """A protocol with few processes and small bounds."""

    def start(self) -> State:
        """Return the initial state."""
        ...

    def steps(self, state: State) -> Steps[State]:
        """Return all possible next steps."""
        ...

    def fault(self, state: State) -> str:
        """Return the fault of a state, or an empty string."""
        ...


class Finding(NamedTuple):
    """Result of an exploration.

    states: number of states. fault: the fault that was found, or empty. story: the shortest
    sequence of steps to it.
    """

    states: int
    fault: str
    story: Sequence[str]
    took_s: float


class TooLarge(Exception):
    """The model has too many states, so nothing was proven."""


def explore(model: Model[State], *, states_max: int = STATES_MAX) -> Finding:
    """Visit every reachable state, until one has a fault.

    Raises: TooLarge: the model has more than `states_max` states.
    """
    gc.disable()  # states have no reference cycles, and collection takes half of the time
    began_s = time.process_time()
    start = model.start()
    before: dict[State, State | None] = {start: None}
    waiting = deque([start])
    fault = model.fault(start)
    wrong = start
    while waiting and not fault:
        state = waiting.popleft()
        for _, following in model.steps(state):
            if following in before:
                continue
            before[following] = state
            waiting.append(following)
            if fault := model.fault(following):
                wrong = following
                break
        if len(before) > states_max:
            raise TooLarge(f"{type(model).__name__} has more than {states_max} states.")
    story = _story(model, before, wrong) if fault else []
    return Finding(len(before), fault, story, time.process_time() - began_s)


def _story(model: Model[State], before: dict[State, State | None], last: State) -> list[str]:
    """Return the steps from the start to a state."""
    words: list[str] = []
    state = last
    while (earlier := before[state]) is not None:
        words.append(next(word for word, there in model.steps(earlier) if there == state))
        state = earlier
    return words[::-1]


def put(items: tuple[Item, ...], place: int, item: Item) -> tuple[Item, ...]:
    """Replace one item of a tuple."""
    return (*items[:place], item, *items[place + 1 :])
