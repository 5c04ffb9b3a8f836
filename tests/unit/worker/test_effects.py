"""How a worker writes effects beside its loop."""

import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest

from dueline.core.store import Drop
from dueline.jobs import decisions
from dueline.jobs.decisions import Decision
from dueline.store_tests.calls import new_jobs
from dueline.worker.effects import WAITING_MAX, Effects


class Written:
    """Notes the groups that are written; each waits until it may go on."""

    def __init__(self) -> None:
        self.groups: list[int] = []
        self.begun = threading.Semaphore(0)
        self.may_go_on = threading.Semaphore(0)

    def __call__(self, _: object, ends: Sequence[Decision]) -> None:
        if ends:
            self.groups.append(len(ends))
            self.begun.release()
            self.may_go_on.acquire()


class Far:
    scope = "network"


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Written:
    written = Written()
    monkeypatch.setattr(decisions, "carry", written)
    return written


def ends(count: int) -> list[Decision]:
    return [Decision(Drop(job)) for job in new_jobs(count)]


def test_endings_that_wait_are_written_together(written: Written) -> None:
    beside = Effects(cast("Any", Far()))
    beside.write(ends(3))
    written.begun.acquire()
    for _ in range(4):
        beside.write(ends(2))
    written.may_go_on.release(9)
    beside.close()
    assert written.groups == [3, 8]


def test_more_than_a_group_may_have_waits_for_its_turn(written: Written) -> None:
    beside = Effects(cast("Any", Far()))
    beside.write(ends(1))
    written.begun.acquire()
    beside.write(ends(WAITING_MAX))
    threading.Timer(0.05, written.may_go_on.release, (9,)).start()
    beside.write(ends(2))
    assert written.groups[0] == 1
    beside.write(ends(3))
    beside.close()
    assert sum(written.groups) == 1 + WAITING_MAX + 5


def test_each_ending_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(decisions, "carry", lambda _, decided: seen.append(len(decided)))
    beside = Effects(cast("Any", Far()))
    for count in range(200):
        beside.write(ends(count % 7))
    beside.close()
    assert sum(seen) == sum(count % 7 for count in range(200))
