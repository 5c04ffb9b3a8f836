"""Which code is monitored while a thread is to be interrupted, on every release of Python."""

import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, SimpleNamespace
from typing import Any

import pytest

from dueline.worker.interrupt import Strike, _Monitoring, _Thread
from dueline.worker.safe_points import points_of

INSTRUCTION = 8
OWN_TOOLS = (4, 3)


class Tools:
    """What `sys.monitoring` does, without calling back."""

    events = SimpleNamespace(INSTRUCTION=INSTRUCTION)
    DISABLE = object()

    def __init__(self) -> None:
        self.taken: dict[int, str] = {}
        self.callbacks: dict[tuple[int, int], Callable[..., object]] = {}
        self.calls: list[tuple[int, CodeType, int]] = []

    def use_tool_id(self, number: int, name: str) -> None:
        """Take a tool."""
        if number in self.taken:
            raise ValueError(number)
        self.taken[number] = name

    def free_tool_id(self, number: int) -> None:
        """Return a tool."""
        del self.taken[number]

    def register_callback(self, number: int, events: int, call: Callable[..., object]) -> None:
        """Note what is called back."""
        self.callbacks[number, events] = call

    def set_local_events(self, number: int, code: CodeType, events: int) -> None:
        """Note for which code."""
        assert number in self.taken
        self.calls.append((number, code, events))


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Tools:
    tools = Tools()
    monkeypatch.setattr(sys, "monitoring", tools, raising=False)
    return tools


def looping() -> Iterator[FrameType]:
    while True:
        yield sys._getframe()


def straight() -> Iterator[FrameType]:
    yield sys._getframe()


def strike() -> Strike:
    return Strike(TimeoutError, "tests", lambda: None, again=False)


ONE, OTHER = _Thread(-1), _Thread(-2)  # no threads of this process


def test_code_with_loops_is_monitored_once_until_no_thread_is_struck(tools: Tools) -> None:
    way = _Monitoring()
    assert way.here() == _Thread(threading.get_ident())
    frames = [next(looping()), next(straight())]
    assert points_of(frames[0].f_code).turns
    way.strike(ONE, strike(), frames)
    way.strike(OTHER, strike(), frames)
    way.strike(OTHER, strike(), frames)
    number = OWN_TOOLS[0]
    assert tools.taken == {number: "dueline"}
    assert tools.calls == [(number, frames[0].f_code, INSTRUCTION)]
    assert tools.callbacks == {(number, INSTRUCTION): way._at}
    way.release(ONE)
    assert len(tools.calls) == 1
    way.release(OTHER)
    assert tools.calls[1:] == [(number, frames[0].f_code, 0)]
    assert tools.taken == {}
    way.release(OTHER)
    way.strike(ONE, strike(), frames)  # anew
    assert tools.calls[2:] == [(number, frames[0].f_code, INSTRUCTION)]


@pytest.mark.parametrize("taken", [(), OWN_TOOLS[:1], OWN_TOOLS])
def test_a_tool_is_taken_that_is_free(tools: Tools, taken: tuple[int, ...]) -> None:
    tools.taken = dict.fromkeys(taken, "a profiler")
    way = _Monitoring()
    way.strike(ONE, strike(), [next(looping())])
    own = [number for number, name in tools.taken.items() if name == "dueline"]
    assert own == list(OWN_TOOLS[len(taken) : len(taken) + 1])
    assert len(tools.calls) == len(own)
    way.release(ONE)
    assert tools.taken == dict.fromkeys(taken, "a profiler")


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("hits", [False, True])
@pytest.mark.parametrize("is_own", [False, True])
def test_a_struck_thread_raises_where_a_loop_turns_at_a_safe_point(
    tools: Tools, *, again: bool, hits: bool, is_own: bool
) -> None:
    way, code = _Monitoring(), looping.__code__
    (turn, *_) = points_of(code).turns
    assert way._at(code, -1) is tools.DISABLE
    assert way._at(code, turn) is None  # no thread is struck
    thread = threading.get_ident() if is_own else ONE.id
    blow: Any = SimpleNamespace(
        error=TimeoutError, places=set() if again else None, hits=lambda _frame: hits
    )
    way._struck[thread] = blow
    if is_own and hits:
        with pytest.raises(TimeoutError):
            way._at(code, turn)
    else:
        assert way._at(code, turn) is None
    assert (thread in way._struck) == (again or not (is_own and hits))
