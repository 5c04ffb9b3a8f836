"""Laws of decisions on every store, whatever stops and whatever arrives late (C1 to C9, P5).

A decision is that of a record which inserts a job, the end of a job, or the end of a job whose
unique key a successor takes over. A step is a call of the store.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dueline.core.attempt import Done, Ended, Outcome
from dueline.core.call_options import CallOptions, Rule
from dueline.core.clock import DAY_US
from dueline.core.errors import Unknown
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import NO_VERSION, Commit, Group, Lease, Put, Row, Store, Want
from dueline.jobs import decisions, results, unique_records
from dueline.jobs.completion import Finished, complete, decision_of, finish_of, stored
from dueline.jobs.decisions import Decision, decide, of_record, settle
from dueline.jobs.history import attempt_of
from dueline.store_tests.calls import (
    id_of,
    lane_of,
    new_job,
    put_in,
    records_in,
    stream_of,
    token_of,
)
from tests.harness.addresses import IN_MEMORY, WITH_ADDRESS, world_of
from tests.harness.failing_store import FailingStore, Fault, Interrupted
from tests.harness.world import LEASE_US, World

STEPS_MAX = 20
KEY = Rule("key")
OPEN, OTHER, CLOSED = token_of(1), token_of(2), token_of(3)


class Subject:
    """What processes decide about.

    Args:
      world: The store, and the time.
      number: Distinguishes it from the others of the store.
    """

    def __init__(self, world: World, number: int) -> None:
        self.store, self.number, self.now_us = world.store, number, world.now_us
        lane = lane_of(self.now_us, queue=f"q{number}")
        self.job = new_job(number, at_us=self.now_us, lane=lane)

    def apply(self, store: Store, *, by: int = 1) -> bool:
        """Decide about it, as one of two processes; return whether that was applied."""
        raise NotImplementedError

    def resume(self, store: Store) -> None:
        """Do what the next process does: complete it, or decide about it."""
        raise NotImplementedError

    def effects(self) -> list[bool]:
        """Return for each effect whether it is there."""
        raise NotImplementedError

    def is_decided(self) -> bool:
        """Return whether it was decided about."""
        raise NotImplementedError


class InsertingRecord(Subject):
    """A record that inserts a job and a row, and is closed afterwards."""

    def _decision(self, version: bytes) -> Decision:
        write = Commit("p", (Put(self.job.id.hex(), version, b"open", expect=NO_VERSION),))
        row = Row("log", 0, self.now_us, self.job.id, b"row")
        closed = Put(self.job.id.hex(), CLOSED, b"closed")
        return of_record(write, Group(jobs=[self.job], rows=[row]), closed)

    def _version(self) -> bytes | None:
        versions = {record.key: record.version for record in records_in(self.store, "p")}
        return versions.get(self.job.id.hex())

    def apply(self, store: Store, *, by: int = 1) -> bool:
        return decide(store, [self._decision(OPEN if by == 1 else OTHER)])[0]

    def resume(self, store: Store) -> None:
        version = self._version()
        if version is None:
            self.apply(store)
        elif version != CLOSED:
            decisions.complete(store, self._decision(version), age_us=0)

    def effects(self) -> list[bool]:
        rows = [row.id for row in stream_of(self.store)]
        row = self.store.find([self.job.id])[0]
        return [row is not None, rows.count(self.job.id) == 1, self._version() == CLOSED]

    def is_decided(self) -> bool:
        return self._version() is not None


class End(Subject):
    """The end of a job, with a result and a row of the history."""

    opts = b""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self.job = self.job._replace(opts=self.opts)
        put_in(self.store, self.job)
        lease = Lease(self.now_us, LEASE_US, "w", token_of(100))
        (self.row,) = self.store.claim([Want(self.job.lane, 1)], limit=1, lease=lease).jobs

    def _end(self, value: str) -> Finished:
        ended = Ended(self.row, Done(b""), self.now_us, self.now_us)
        attempt = attempt_of(ended, outcome="done", error="")
        outcome = Outcome("done", self.now_us, value=value)
        settings = QueueSettings(keep_us=DAY_US)
        return Finished(self.row, finish_of(self.row, outcome, attempt, settings))

    def apply(self, store: Store, *, by: int = 1) -> bool:
        return settle(store, [decision_of(self._end(str(by)))])[0]

    def resume(self, store: Store) -> None:
        (row,) = self.store.find([self.job.id])
        if row is not None and row.outcome:
            complete(store, [stored(row)])
        elif row is not None:
            self.apply(store)

    def effects(self) -> list[bool]:
        rows = stream_of(self.store, f"{self.job.lane.queue}!history")
        kept = results.read(self.store, self.job.id)
        row = self.store.find([self.job.id])[0]
        return [kept is not None, len(rows) == 1, row is None]

    def is_decided(self) -> bool:
        row = self.store.find([self.job.id])[0]
        return row is None or bool(row.outcome)


class Handover(End):
    """The end of a job whose unique key a new job takes over."""

    opts = CallOptions(unique=KEY).to_bytes()

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self._next = self.job._replace(id=id_of(1000 + number))
        take = unique_records.take(self.job, KEY, expect=NO_VERSION)
        assert self.store.commit(take.partition, take.writes)

    def _end(self, value: str) -> Finished:
        job, end = super()._end(value)
        return Finished(job, replace(end, successor=self._next))

    def effects(self) -> list[bool]:
        holder = unique_records.read(self.store, self.job.lane.queue, KEY.key)
        next_row = self.store.find([self._next.id])[0]
        is_taken = holder is not None and holder.id == self._next.id
        return [*super().effects(), next_row is not None, is_taken]


class Late(FailingStore):
    """The store of a process that gives its n-th call up, which lands later."""

    def __init__(self, store: Store, number: int) -> None:
        super().__init__(store, {})
        self._number = number
        self.land: Callable[[], object] = lambda: None

    def _call(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401  (what the store returns)
        self.calls += 1
        if self.calls == self._number:
            self.land = call
            raise Unknown("It has not landed yet.")
        return call()


Make = Callable[[int], Subject]


@pytest.fixture(params=[*IN_MEMORY, *WITH_ADDRESS])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with world_of(request.param, tmp_path) as made:
        yield made


@pytest.fixture(params=[InsertingRecord, End, Handover])
def make(request: pytest.FixtureRequest, world: World) -> Make:
    return lambda number: request.param(world, number)


def decided_by(subject: Subject, store: FailingStore, *, by: int = 1) -> bool:
    """Decide about a subject; return whether the caller knows that it was applied."""
    try:
        return subject.apply(store, by=by)
    except Unknown:
        return False


def assert_whole(subject: Subject) -> None:
    """Check that all effects are there if it was decided, and that none is if not."""
    effects = subject.effects()
    assert effects == [subject.is_decided()] * len(effects)


@pytest.mark.parametrize("fault", Fault)
def test_a_process_that_stops_at_any_step_leaves_nothing_or_what_the_next_one_completes(
    world: World, make: Make, fault: Fault
) -> None:
    # rules C1 to C4, P5: before each step, and after it
    for step in range(1, STEPS_MAX):
        subject = make(step)
        store = FailingStore(world.store, {step: fault})
        decided_by(subject, store)
        if not subject.is_decided():
            assert_whole(subject)
        subject.resume(world.store)
        assert subject.is_decided()
        assert_whole(subject)
        if store.calls < step:
            return
    raise AssertionError("it never comes to an end")


def test_two_processes_complete_the_same_decision(world: World, make: Make) -> None:
    # rules C2 and C3: the second one acts before each step of the first
    for step in range(1, STEPS_MAX):
        subject = make(step)
        store = Interrupted(world.store, step, partial(subject.resume, world.store))
        subject.apply(store)
        assert_whole(subject)
        if store.calls < step:
            return
    raise AssertionError("it never comes to an end")


def test_of_two_processes_that_decide_one_does(world: World, make: Make) -> None:
    # rule C1: the second one decides before each step of the first
    for step in range(1, STEPS_MAX):
        subject = make(step)
        held: list[bool] = []

        def act(subject: Subject = subject, held: list[bool] = held) -> None:
            held.append(subject.apply(world.store, by=2))

        store = Interrupted(world.store, step, act)
        held.append(subject.apply(store))
        assert sum(held) == 1
        subject.resume(world.store)
        assert_whole(subject)
        if store.calls < step:
            return
    raise AssertionError("it never comes to an end")


def test_a_step_that_lands_after_the_others_changes_nothing(world: World, make: Make) -> None:
    # rules C2 and C3: another process has completed the decision, or made it again
    for step in range(1, STEPS_MAX):
        subject, store = make(step), Late(world.store, step)
        decided_by(subject, store)
        subject.resume(world.store)
        assert_whole(subject)
        store.land()
        subject.resume(world.store)
        assert subject.is_decided()
        assert_whole(subject)
        if store.calls < step:
            return
    raise AssertionError("it never comes to an end")
