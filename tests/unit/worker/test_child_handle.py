"""What the parent knows of a child process, and what becomes of its jobs when it dies."""

from collections.abc import Iterator
from typing import Any

import pytest

from dueline.core.attempt import Cancelled, Crashed, Done, Each, Ended, Failed, GivenBack
from dueline.core.call_options import CallOptions, CallTerms
from dueline.core.clock import SECOND_US
from dueline.core.retry import Retry
from dueline.tasks.handler import Handler
from dueline.worker.assignment import Assignment
from dueline.worker.child_board import Board, create_memory
from dueline.worker.child_handle import ChildHandle
from dueline.worker.child_protocol import (
    Extended,
    Finished,
    Leave,
    Lost,
    Message,
    Recall,
    Run,
)
from dueline.worker.context_controls import BY_FORCE
from dueline.worker.execution import LOST_AFTER_US
from dueline.worker.recycling import RecycleAfter
from tests.harness.calls import row_of
from tests.harness.fake_children import FakePipe, FakeProcess

OFFSET_US = 1_000
SINCE_US = 5
LIMIT_US, KILL_US = 2 * SECOND_US, 3 * SECOND_US


def assignment(number: int, task: str = "plain", **rest: Any) -> Assignment:  # noqa: ANN401
    job = row_of(number, task=task)._replace(fence=1)
    return Assignment(job, keep=True, since_us=SINCE_US, **rest)


def batch(*numbers: int) -> Assignment:
    members = tuple(map(assignment, numbers))
    leader = members[0].job._replace(fence=-1)
    return members[0]._replace(job=leader, chunk=members)


class Child(ChildHandle):
    """A child of which the test says what it runs."""

    def __init__(self, board: Board | None) -> None:
        self.faked, self.fake_pipe = FakeProcess(-9), FakePipe(FakeProcess())
        handlers = {
            name: Handler(len, name=name, retry=Retry(), timeout_us=timeout_us,
                          kill_after_us=kill_us)
            for name, timeout_us, kill_us in [
                ("plain", None, None), ("limited", LIMIT_US, None), ("killed", None, KILL_US),
            ]
        }  # fmt: skip
        super().__init__(self.faked, self.fake_pipe, handlers, board)

    def take(self, *assignments: Assignment) -> None:
        self.give(OFFSET_US, 0, assignments)

    def start(self, *assignments: Assignment, at_us: int = 100) -> None:
        for each in assignments:
            if self._board is None:
                self.on_started(each.job.claim(), at_us)
            else:
                self._board.start(self._cells[each.job.claim()], at_us)

    def sent(self, kind: type[Message]) -> list[Message]:
        return [message for message in self.fake_pipe.sent if isinstance(message, kind)]

    @property
    def is_killed(self) -> bool:
        return self.faked.ended.is_set()

    def endings(self, monotonic_us: int = 900) -> tuple[list[Assignment], list[Ended]]:
        self.faked.kill()
        return self.endings_of_dead(monotonic_us, OFFSET_US)


@pytest.fixture(params=["board", "messages"])
def child(request: pytest.FixtureRequest) -> Iterator[Child]:
    child = Child(Board(create_memory(9)) if request.param == "board" else None)
    yield child
    child.close()


def test_a_child_has_the_jobs_that_it_was_given_until_they_end(child: Child) -> None:
    jobs = [assignment(1), batch(2, 3), assignment(4, alone=True)]
    claims = [each.job.claim() for each in jobs]
    members = [row_of(number)._replace(fence=1).claim() for number in (2, 3)]
    assert not child.has_lone()
    child.take(*jobs)
    (run,) = child.sent(Run)
    assert isinstance(run, Run)
    assert (run.offset_us, len(run.assignments)) == (OFFSET_US, 3)
    assert child.has_lone()
    assert child.having([*claims, *members, assignment(9).job.claim()]) == [*claims, *members]
    assert (child.started(), child.unstarted()) == ({}, claims)
    assert child.unstarted_since_us() == [SINCE_US, SINCE_US]
    child.start(jobs[0], at_us=70)
    assert (child.started(), child.unstarted()) == ({claims[0]: 70}, claims[1:])
    assert child.unstarted_since_us() == [SINCE_US]
    assert child.on_returned([claims[2], assignment(9).job.claim()]) == [jobs[2]]
    assert not child.has_lone()
    assert list(child.given) == claims[:2]
    child.on_started(assignment(9).job.claim(), 70)
    assert list(child.started()) == claims[:1]


def test_a_child_is_notified_only_of_what_concerns_it(child: Child) -> None:
    started, waits, many = assignment(1), assignment(2), batch(3, 4)
    child.take(started, waits, many)
    child.start(started)
    others = [assignment(number).job.claim() for number in range(1, 7)]
    child.extend(dict.fromkeys(others, 50))
    child.extend(dict.fromkeys(others[4:], 60))
    unstarted = [waits.job.claim(), *(each.job.claim() for each in many.chunk)]
    assert child.sent(Extended) == [Extended(dict.fromkeys(unstarted, 50))]
    child.forget(others[4:])
    assert child.sent(Lost) == []
    child.forget(others[:3] + others[4:])
    (lost,) = child.sent(Lost)
    assert isinstance(lost, Lost)
    assert [tuple(claim) for claim in lost.claims] == [tuple(claim) for claim in others[:3]]


def test_a_child_returns_what_it_has_not_started_and_exits_once_it_is_idle(child: Child) -> None:
    started, waits = assignment(1), assignment(2)
    child.recall()
    assert child.sent(Recall) == []  # it has nothing
    child.take(started, waits)
    child.start(started)
    for _ in range(2):
        child.ask_to_exit()
    assert (len(child.sent(Recall)), child.sent(Leave)) == (1, [])
    child.is_recalled = False
    assert child.on_returned([waits.job.claim()]) == [waits]
    child.ask_to_exit()
    assert (len(child.sent(Recall)), child.sent(Leave)) == (1, [])  # all are started
    child.on_returned([started.job.claim()])
    for _ in range(2):
        child.ask_to_exit()
    assert len(child.sent(Leave)) == 1


def test_a_dead_child_is_sent_nothing(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    def send_bytes(_data: bytes) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(child.fake_pipe, "send_bytes", send_bytes)
    child.take(assignment(1))
    assert child.endings() == ([assignment(1)], [])


def test_jobs_that_ended_are_counted_and_their_places_used_again(child: Child) -> None:
    for number in range(1, 30):
        job = assignment(number)
        child.take(job)
        child.start(job)
        claim = job.job.claim()
        finished = Finished(claim, Done(b"7"), 100, 200)
        ended = child.on_finished(finished)
        if child._board is not None:
            assert ended is None
            child._board.end(child._cells[claim], b"")
            (ended,) = child.on_written([child._cells[claim]])
        assert ended == Ended(job.job, Done(b"7"), 100, 200)
        assert (child.ran, child.given, child.started()) == (number, {}, {})
    assert child.on_finished(Finished(assignment(1).job.claim(), Done(b"7"), 1, 2)) is None


@pytest.mark.parametrize(("after_us", "is_lost"), [(LOST_AFTER_US - 1, False),
                                                   (LOST_AFTER_US, True)])  # fmt: skip
def test_a_child_is_killed_once_it_runs_only_handlers_that_outlived_their_limits(
    child: Child, after_us: int, *, is_lost: bool
) -> None:
    limited, plain = assignment(1, "limited"), assignment(2)
    child.take(limited, plain)
    child.start(limited, plain)
    now_us = 100 + LIMIT_US + after_us
    lost = child.lost(now_us, OFFSET_US)
    assert {claim: slot.since_us for claim, slot in lost.items()} == (
        {limited.job.claim(): 100 + LIMIT_US + OFFSET_US} if is_lost else {}
    )
    child.kill_lost(lost)
    assert not child.is_killed  # another handler runs beside it
    child.on_returned([plain.job.claim()])
    child.kill_lost(lost)
    assert child.is_killed is is_lost
    waiting, ((job, ending, started_us, ended_us),) = child.endings(now_us)
    assert (waiting, job) == ([], limited.job)
    assert (started_us, ended_us) == (100 + OFFSET_US, now_us + OFFSET_US)
    if is_lost:
        assert isinstance(ending, Failed)
        assert "2 s (timeout)" in ending.message
    else:
        assert ending == Crashed("The process died with signal 9.")


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("after_us", [-1, 0])
def test_a_handler_beyond_its_kill_after_fails_and_what_ran_beside_it_is_released(
    child: Child, after_us: int, *, own: bool
) -> None:
    late, beside, waits = assignment(1, "plain" if own else "killed"), assignment(2), assignment(3)
    if own:
        late = late._replace(
            job=late.job._replace(
                opts=CallOptions(terms=CallTerms(kill_after_us=KILL_US)).to_bytes()
            )
        )
    child.take(late, beside, waits)
    child.start(late, beside)
    child.kill_overdue(100 + KILL_US + after_us)
    assert child.is_killed is (after_us == 0)
    waiting, ended = child.endings()
    assert waiting == [waits]
    endings = [each.ending for each in ended]
    if after_us:
        assert endings == [Crashed("The process died with signal 9.")] * 2
    else:
        assert isinstance(endings[0], Failed)
        assert "3 s (kill_after)" in endings[0].message
        assert endings[1] == GivenBack(may_have_run=True)


def test_jobs_that_end_by_force_are_cancelled_and_those_beside_them_released(child: Child) -> None:
    alone, many, beside, waits = assignment(1), batch(2, 3), assignment(4), assignment(5)
    child.take(alone, many, beside, waits)
    child.start(alone, many, beside)
    forced = [alone.job.claim(), many.chunk[1].job.claim(), waits.job.claim()]
    child.kill_overdue(500)
    assert not child.is_killed
    child.forced.update(child.having(forced))
    child.kill_overdue(500)
    assert child.is_killed
    waiting, ended = child.endings()
    assert waiting == [waits]
    cancelled = Cancelled(BY_FORCE)
    assert ended[0].ending == cancelled
    assert isinstance(ended[1].ending, Each)
    assert dict(ended[1].ending.endings) == {
        many.chunk[0].job.claim(): GivenBack(may_have_run=True),
        many.chunk[1].job.claim(): cancelled,
    }  # fmt: skip
    assert ended[2].ending == GivenBack(may_have_run=True)


def test_what_had_ended_before_its_child_died_has_ended(child: Child) -> None:
    job = assignment(1)
    child.take(job)
    child.start(job)
    ended = child.on_finished(Finished(job.job.claim(), Done(b"7"), 100, 200))
    if child._board is not None:
        assert child.endings() == ([], [Ended(job.job, Done(b"7"), 100, 200)])
    else:
        assert ended is not None
        assert child.endings() == ([], [])


@pytest.mark.parametrize(
    ("after", "ran", "size", "is_worn"),
    [(RecycleAfter(), 99, 99, False), (RecycleAfter(jobs=3), 2, 99, False),
     (RecycleAfter(jobs=3), 3, 0, True), (RecycleAfter(memory_bytes=9), 99, 8, False),
     (RecycleAfter(memory_bytes=9), 0, 9, True), (RecycleAfter(3, 9), 3, 0, True),
     (RecycleAfter(3, 9), 0, 9, True)],
)  # fmt: skip
def test_a_child_is_replaced_at_each_of_its_bounds(
    child: Child, monkeypatch: pytest.MonkeyPatch, after: RecycleAfter, ran: int, size: int,
    *, is_worn: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr("dueline.worker.child_handle.resident_bytes", lambda _pid: size)
    child.ran = ran
    child.recycle_if_due(after, weigh=False)
    assert child.is_worn is (after.jobs is not None and ran >= after.jobs)
    child.recycle_if_due(after, weigh=True)
    assert child.is_worn is is_worn
