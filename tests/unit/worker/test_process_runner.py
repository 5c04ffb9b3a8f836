"""Child processes that only exist in the test: which are replaced, and what is counted."""

import threading

import pytest

from dueline.worker.child_handle import ChildHandle
from dueline.worker.child_protocol import Leave, Ready
from dueline.worker.process_runner import WEIGH_EVERY_US, ProcessRunner
from dueline.worker.recycling import RecycleAfter
from tests.harness.clocks import HandClock
from tests.harness.fake_children import WAIT_S, FakePipe, FakeProcess


class Family:
    """A runner of fake children."""

    def __init__(self, *, processes: int, wear: RecycleAfter) -> None:
        self.clock = HandClock()
        self.pipes: list[FakePipe] = []
        self.children: list[ChildHandle] = []
        self.wakeup = threading.Event()
        self.runner = ProcessRunner(
            self._spawn, processes=processes, threads=processes, clock=self.clock,
            now_us=self.clock.wall_us, wakeup=self.wakeup, wear=wear,
        )  # fmt: skip
        self.runner.start()

    def _spawn(self) -> ChildHandle:
        process = FakeProcess()
        pipe = FakePipe(process)
        self.pipes.append(pipe)
        self.children.append(ChildHandle(process, pipe, {}))
        return self.children[-1]

    def ready(self, *numbers: int) -> None:
        """Let children say that they are ready."""
        for number in numbers:
            self.pipes[number].say(Ready())
            while not self.children[number].is_ready:
                assert self.wakeup.wait(WAIT_S)
                self.wakeup.clear()

    def left(self) -> list[int]:
        """Return the children that were asked to leave."""
        self.runner.interrupt_overdue()
        return [
            number
            for number, pipe in enumerate(self.pipes)
            if any(isinstance(message, Leave) for message in pipe.sent)
        ]

    def close(self) -> None:
        self.runner.close()
        for pipe in self.pipes:
            pipe.end()


def test_a_child_that_is_worn_leaves_once_its_replacement_is_ready() -> None:
    family = Family(processes=2, wear=RecycleAfter(jobs=1))
    family.ready(0, 1)
    assert family.left() == []
    family.children[0].ran = 1
    assert family.left() == []
    assert len(family.pipes) == 3  # only one replacement
    assert family.left() == []
    family.ready(2)
    assert family.left() == [0]
    family.children[1].ran = 1
    assert family.left() == [0]
    family.ready(3)
    assert family.left() == [0, 1]
    assert len(family.pipes) == 4
    family.close()


def test_only_as_many_children_leave_as_there_are_replacements() -> None:
    family = Family(processes=2, wear=RecycleAfter(jobs=1))
    family.ready(0, 1)
    for child in family.children:
        child.ran = 1
    assert family.left() == []
    assert len(family.pipes) == 4
    family.ready(2)
    assert family.left() == [0]
    assert family.runner.capacity == 2
    family.ready(3)
    assert family.left() == [0, 1]
    family.close()


def test_memory_is_read_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading it costs too much for each turn of the worker's loop."""
    weighed: list[int] = []

    def resident_bytes(pid: int) -> int:
        weighed.append(pid)
        return 10

    monkeypatch.setattr("dueline.worker.child_handle.resident_bytes", resident_bytes)
    family = Family(processes=1, wear=RecycleAfter(memory_bytes=11))
    family.ready(0)
    for turns in range(1, 4):
        family.clock.advance(us=WEIGH_EVERY_US + 1)
        for _ in range(3):
            assert family.left() == []
        assert len(weighed) == turns
    assert len(family.pipes) == 1
    family.close()
