"""Rules of claims and verdicts, broken."""

from collections.abc import Sequence

import pytest

from dueline.core.job import Job
from dueline.core.store import Extend, Lease, Verdict
from dueline.stores.cursor_cache import RowVersion, key_of
from dueline.stores.row_updates import claimed
from tests.harness import cluster, row_changes, stepped_store
from tests.harness.row_changes import Change, Found, claim, holds
from tests.harness.stepped_store import SteppedMemoryStore

Patch = pytest.MonkeyPatch


def _is_claim(change: Change) -> bool:
    return change.at_us is not None


def an_unfenced_claim(patch: Patch) -> None:
    def anyhow(found: Found | None, change: Change) -> bool:
        return holds(found, change) or (found is not None and _is_claim(change))

    patch.setattr(cluster, "holds", anyhow)


def a_claim_by_the_fence(patch: Patch) -> None:
    fences: dict[int, int] = {}

    def claim_it(row: Job, lease: Lease) -> Change:
        change = claim(row, lease)
        fences[id(change)] = row.fence
        return change

    def by_fence(found: Found | None, change: Change) -> bool:
        if not _is_claim(change) or found is None:
            return holds(found, change)
        is_same = (found.job.fence, found.job.at_us) == (fences[id(change)], change.at_us)
        return is_same and found.job.state == change.state

    patch.setattr(stepped_store, "claim", claim_it)
    patch.setattr(cluster, "holds", by_fence)


def a_claim_by_the_token_alone(patch: Patch) -> None:
    def by_token(found: Found | None, change: Change) -> bool:
        return holds(found, change._replace(at_us=None, state=None))

    patch.setattr(cluster, "holds", by_token)


def the_fence_is_not_raised(patch: Patch) -> None:
    def claim_at_rest(row: Job, lease: Lease) -> Job:
        return claimed(row, lease)._replace(fence=max(1, row.fence))

    patch.setattr(row_changes, "claimed", claim_at_rest)
    patch.setattr(stepped_store, "claimed", claim_at_rest)


def an_unconditional_verdict(patch: Patch) -> None:
    def anyhow(found: Found | None, change: Change) -> bool:
        if found is None or _is_claim(change):
            return holds(found, change)
        return holds(found, change._replace(token=found.job.token))

    patch.setattr(cluster, "holds", anyhow)


def an_extension_that_revives_a_lapsed_claim(patch: Patch) -> None:
    settle = SteppedMemoryStore._settle

    def revive(self: SteppedMemoryStore, verdict: Verdict) -> bool:
        if not isinstance(verdict, Extend):
            return settle(self, verdict)
        job = verdict.job
        for found in self._node.some(job.lane, [key_of(job)]):
            cells = {"at_us": verdict.at_us, "token": job.token}
            change = Change(key_of(job), found.job.token, cells=cells)
            return self._decide(job.lane, change, RowVersion(verdict.at_us, job.token)) is None
        return False

    patch.setattr(SteppedMemoryStore, "_settle", revive)


def a_verdict_is_never_refused(patch: Patch) -> None:
    """Tell every caller that its verdict held."""
    settle = SteppedMemoryStore.settle

    def held(self: SteppedMemoryStore, verdicts: Sequence[Verdict]) -> Sequence[bool]:
        settle(self, verdicts)
        return [True] * len(verdicts)

    patch.setattr(SteppedMemoryStore, "settle", held)
