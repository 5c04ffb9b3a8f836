"""Rules of requests that were given up, broken."""

from collections.abc import Mapping, Sequence

import pytest

from dueline.core.errors import Unknown
from dueline.core.ids import Ids
from dueline.core.job import Job
from dueline.core.lane import Lane
from dueline.core.readback import WriteStatus
from dueline.core.store import Drop, Lease, Move, Write
from dueline.jobs import completion
from dueline.jobs.decisions import Cell
from dueline.stores.cursor_cache import Key
from tests.harness.row_changes import Change, Found, claim, holds
from tests.harness.stepped_store import SteppedMemoryStore

Patch = pytest.MonkeyPatch


def _claim(
    self: SteppedMemoryStore, lane: Lane, jobs: Sequence[Job], lease: Lease
) -> Mapping[Key, Found] | None:
    changes = [claim(job, lease) for job in jobs]
    try:
        return self._node.decide(lane, changes)
    except Unknown as error:
        present = self._read_back(error, lane, [change.key for change in changes])
    if not all(holds(present.get(change.key), change) for change in changes):
        return present
    refused = self._node.decide(lane, changes)
    return None if refused is None else {}


def _send(self: SteppedMemoryStore, lane: Lane, change: Change) -> Mapping[Key, Found] | None:
    try:
        return self._node.decide(lane, [change])
    except Unknown as error:
        present = self._read_back(error, lane, [change.key])
    status = self._status(change, present.get(change.key), is_unsure=True)
    if status is WriteStatus.OPEN:
        return self._node.decide(lane, [change])
    return None if status is WriteStatus.HELD else present


def _commit(self: SteppedMemoryStore, partition: str, writes: Sequence[Write]) -> bool:
    try:
        return self._node.commit(partition, writes, self.clock_us())
    except Unknown as error:
        status = self._commit_status(error, partition, writes)
        if status is WriteStatus.UNKNOWN:
            raise
    return status is WriteStatus.HELD or self._node.commit(partition, writes, self.clock_us())


def a_refusal_is_believed(patch: Patch) -> None:
    """Read back what was given up, repeat it, and take what the repeat is told at its word."""
    patch.setattr(SteppedMemoryStore, "_claim", _claim)
    patch.setattr(SteppedMemoryStore, "_send", _send)
    patch.setattr(SteppedMemoryStore, "commit", _commit)


def a_claim_believes_a_refusal(patch: Patch) -> None:
    patch.setattr(SteppedMemoryStore, "_claim", _claim)


def a_verdict_believes_a_refusal(patch: Patch) -> None:
    patch.setattr(SteppedMemoryStore, "_send", _send)


def a_commit_believes_a_refusal(patch: Patch) -> None:
    patch.setattr(SteppedMemoryStore, "commit", _commit)


def an_outcome_has_another_token_each_time(patch: Patch) -> None:
    decide = completion._cell_of
    ids = Ids()

    def decide_anew(job: Job, end: completion.Finish) -> Cell:
        write, closed = decide(job, end)
        assert isinstance(write, Move)
        assert isinstance(closed, Drop)
        write = write._replace(token=ids.token())
        return Cell(write, Drop(closed.job._replace(token=write.token)))

    patch.setattr(completion, "_cell_of", decide_anew)
