"""Child processes that only exist in the test: which are replaced, and what is counted."""

import threading

import pytest

from dueline.worker.assignment import Assignment
from dueline.worker.child_handle import ChildHandle
from dueline.worker.child_protocol import CancelAsked, Extended, Leave, Lost, Ready, Run
from dueline.worker.process_runner import WEIGH_EVERY_US, ProcessRunner
from dueline.worker.recycling import NO_RECYCLING, RecycleAfter
from tests.harness.calls import row_of
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


def assignment(number: int, *, since_us: int = 0) -> Assignment:
    return Assignment(row_of(number)._replace(fence=1), keep=True, since_us=since_us)


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


def test_jobs_wait_for_others_once_all_children_have_loaded() -> None:
    family = Family(processes=2, wear=NO_RECYCLING)
    family.ready(0)
    first, second, third = (assignment(number, since_us=number) for number in (1, 2, 3))
    alone = assignment(9, since_us=1)._replace(alone=True)
    family.runner.submit([first, second, third])
    assert family.runner.waiting_since_us() is None  # a child is loading
    family.ready(1)
    assert family.runner.waiting_since_us() == 1  # given, and not started
    family.children[0].on_started(first.job.claim(), 5)
    assert family.runner.waiting_since_us() == 2
    family.runner.submit([alone])
    assert family.runner.waiting_since_us() == 2
    assert {job.id for job in family.runner.take_waiting()} == {second.job.id, third.job.id}
    assert family.runner.waiting_since_us() is None
    assert [child.has_lone() for child in family.children] == [False, True]
    assert family.runner.waiting() == 0
    family.close()


def test_a_child_is_told_what_happened_to_claims_while_their_jobs_waited() -> None:
    family = Family(processes=1, wear=NO_RECYCLING)
    members = tuple(assignment(number) for number in (1, 2, 3))
    leader = members[0]._replace(job=members[0].job._replace(fence=-1), chunk=members)
    plain = [assignment(number) for number in (4, 5)]
    claims = [assigned.job.claim() for assigned in (*members, *plain)]
    family.runner.submit([leader, *plain])
    family.runner.extend(dict.fromkeys(claims[:4], 70))
    family.runner.forget([claims[0], claims[3]])
    family.runner.cancel([claims[1], claims[4]])
    assert [end.job for end in family.runner.collect()] == [plain[1].job]
    family.ready(0)
    family.runner.spread()
    sent = family.pipes[0].sent
    assert [type(message) for message in sent] == [Extended, Lost, CancelAsked, Run]
    assert sent[0] == Extended(dict.fromkeys(claims[:3], 70))
    assert [tuple(claim) for claim in sent[1].claims] == [tuple(claims[0])]  # type: ignore[union-attr]
    assert [tuple(claim) for claim in sent[2].claims] == [tuple(claims[1])]  # type: ignore[union-attr]
    assert family.runner.waiting() == 0
    family.close()
