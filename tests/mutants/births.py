"""Rules of adding, carrying and ids, broken."""

from collections.abc import Sequence

import pytest

from dueline.core.ids import Ids
from dueline.core.job import Job, JobId
from dueline.core.lane import Lane
from dueline.core.store import Drop, Move
from dueline.jobs import unique
from dueline.stores.cursor_cache import key_of
from dueline.stores.row_updates import moved
from tests.harness.cluster import Node
from tests.harness.row_changes import Change, Found
from tests.harness.stepped_store import SteppedMemoryStore
from tests.mutants.sources import change_source

Patch = pytest.MonkeyPatch


def carried_without_a_stub(patch: Patch) -> None:
    def carry(self: SteppedMemoryStore, move: Move) -> bool:
        target = moved(move)
        self.add([target])
        return self._settle(Drop(move.job))

    patch.setattr(SteppedMemoryStore, "_carry", carry)


def stub_goes_before_its_target_comes(patch: Patch) -> None:
    complete = SteppedMemoryStore._complete

    def hasty(self: SteppedMemoryStore, found: Found) -> None:
        self._decide(found.job.lane, Change(key_of(found.job), found.job.token), None)
        complete(self, found)

    patch.setattr(SteppedMemoryStore, "_complete", hasty)


def a_dropped_key_lives_again(patch: Patch) -> None:
    insert = Node._insert_once

    def insert_again(self: Node, lane: Lane, job: Job) -> None:
        if key_of(job) not in self.cluster.rows.get(lane, {}):
            self.cluster.inserted.get(lane, {}).pop(key_of(job), None)
        insert(self, lane, job)

    patch.setattr(Node, "_insert_once", insert_again)


def a_unique_key_is_given_to_a_job_that_ended(patch: Patch) -> None:
    change_source(patch, unique._Wanted, "decision", "results.absent(self.job.id),", "")


def a_repeated_add_has_a_position_of_its_own(patch: Patch) -> None:
    add = SteppedMemoryStore.add
    calls = iter(range(1_000_000))

    def add_elsewhere(self: SteppedMemoryStore, jobs: Sequence[Job]) -> Sequence[bool]:
        later_us = next(calls)
        moved_jobs = [
            job._replace(pos_us=job.pos_us + later_us, at_us=job.at_us + later_us) for job in jobs
        ]
        return add(self, moved_jobs)

    patch.setattr(SteppedMemoryStore, "add", add_elsewhere)


def ids_of_time_and_machine(patch: Patch) -> None:
    """Make ids like those of UUIDv1: a time, and what a fork inherits."""
    counted = iter(range(1 << 60))

    def many(_self: Ids, count: int, now_us: int) -> list[JobId]:
        return [JobId(((now_us << 62) + next(counted)).to_bytes(16)) for _ in range(count)]

    patch.setattr(Ids, "many", many)
