"""Every interleaving, breadth first.

A model is a start, the steps that anybody may take next, and what is wrong with a state. Every
actor may stand still for ever at any place, so a crash, a pause and a lost message need no step
of their own: the others simply go on.
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
"""What may happen next, in words, and how things are then."""


class Model(Protocol[State]):
    """A protocol with few actors and small bounds."""

    def start(self) -> State:
        """Give the state before anything has happened."""
        ...

    def steps(self, state: State) -> Steps[State]:
        """List all that may happen next."""
        ...

    def fault(self, state: State) -> str:
        """Say what is wrong with a state; empty when nothing is."""
        ...


class Finding(NamedTuple):
    """How an exploration ended.

    states: how many were seen. fault: what is wrong, empty when nothing is. story: the shortest
    way there, a step an item.
    """

    states: int
    fault: str
    story: Sequence[str]
    took_s: float


class TooLarge(Exception):
    """The model has more states than it may: nothing was proven."""


def explore(model: Model[State], *, states_max: int = STATES_MAX) -> Finding:
    """Visit every state that can be reached, until one is wrong.

    Raises: TooLarge: there are more than `states_max`.
    """
    gc.disable()  # states hold no circles, and looking for them takes half of the time
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
    """Tell the steps from the start to a state."""
    words: list[str] = []
    state = last
    while (earlier := before[state]) is not None:
        words.append(next(word for word, there in model.steps(earlier) if there == state))
        state = earlier
    return words[::-1]


def put(items: tuple[Item, ...], place: int, item: Item) -> tuple[Item, ...]:
    """Replace one item of a tuple."""
    return (*items[:place], item, *items[place + 1 :])
