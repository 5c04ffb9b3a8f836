"""Rules of stores with transactions, broken on purpose."""

from collections.abc import Sequence

import pytest

from dueline.core.job import Job
from dueline.core.store import Group, Lease, Store, Verdict
from dueline.jobs import queue
from dueline.stores.memory import store as memory
from dueline.stores.memory.store import MemoryStore
from dueline.stores.row_updates import claimed

Patch = pytest.MonkeyPatch


def what_has_ended_is_added_again(patch: Patch) -> None:
    def send(store: Store, jobs: Sequence[Job]) -> Sequence[bool]:
        return store.add(jobs)

    patch.setattr(queue, "send_again", send)


def a_transaction_takes_any_token(patch: Patch) -> None:
    settle = MemoryStore._settle

    def settle_anyhow(self: MemoryStore, verdict: Verdict) -> bool:
        row = self._find(verdict.job.id)
        if row is not None and row.lane == verdict.job.lane:
            verdict = verdict._replace(job=verdict.job._replace(token=row.token))
        return settle(self, verdict)

    patch.setattr(MemoryStore, "_settle", settle_anyhow)


def a_group_goes_on_after_a_verdict_that_failed(patch: Patch) -> None:
    """Write effects though the claim was lost, and say that all is well."""

    def apply(self: MemoryStore, group: Group) -> bool:
        for verdict in group.verdicts:
            self._settle(verdict)
        for commit in group.commits:
            self._commit(commit.partition, commit.writes)
        for job in group.jobs:
            self._add(job)
        for row in group.rows:
            self._append(row)
        return True

    patch.setattr(MemoryStore, "_apply", apply)


def a_claim_in_a_transaction_that_raises_no_fence(patch: Patch) -> None:
    def claimed_at_rest(row: Job, lease: Lease) -> Job:
        return claimed(row, lease)._replace(fence=max(1, row.fence))

    patch.setattr(memory, "claimed", claimed_at_rest)
