"""Rules of ending a job, broken."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from dueline.core.attempt import Attempt
from dueline.core.codec import decode
from dueline.core.job import Job
from dueline.core.store import Drop, Move, Store, Streams
from dueline.jobs import completion, decisions, history
from dueline.jobs.decisions import Decision
from dueline.stores.row_updates import moved
from dueline.worker import settlement_plan, settler
from dueline.worker.claimer import ClaimedJob
from dueline.worker.settlement_plan import Planned
from dueline.worker.settler import Settler
from dueline.worker.triage import Triage
from tests.harness import cluster, job_runs, stepped_store
from tests.harness.row_changes import Change, Found, holds

Patch = pytest.MonkeyPatch


def write(store: Store, ends: Sequence[Decision]) -> None:
    """Write effects without the row that tells of them."""
    decisions._follow(store, ends)  # as they would be in a transaction: nothing closes them


def drop(store: Store, ends: Sequence[Decision]) -> list[bool]:
    """End jobs at once, without their effects."""
    return list(store.settle(decisions.verdicts_of(ends)))


def the_key_of_a_retried_job_is_released(patch: Patch) -> None:
    decide = settlement_plan.decision_of

    def freeing(planned: Planned) -> Decision:
        decision = decide(planned)
        return decision._replace(frees=completion.frees_of(planned.ended.job))

    patch.setattr(settler, "decision_of", freeing)


def settle_otherwise(patch: Patch, end: Callable[[Store, Sequence[Decision]], list[bool]]) -> None:
    """Let the ends of jobs be written in another way."""
    settle = decisions.settle

    def settle_all(store: Store, some: Sequence[Decision], *, later: object = None) -> list[bool]:
        del later
        ends = [one for one in some if one.opens is not None]
        return end(store, ends) + settle(store, [one for one in some if one.opens is None])

    patch.setattr(decisions, "settle", settle_all)


def effects_before_the_outcome(patch: Patch) -> None:
    def end(store: Store, ends: Sequence[Decision]) -> list[bool]:
        write(store, ends)
        return drop(store, ends)

    settle_otherwise(patch, end)


def drop_before_the_effects(patch: Patch) -> None:
    def end(store: Store, ends: Sequence[Decision]) -> list[bool]:
        held = drop(store, ends)
        write(store, [one for one, sure in zip(ends, held, strict=True) if sure])
        return held

    settle_otherwise(patch, end)


def drop_before_the_repeated_effects(patch: Patch) -> None:
    follow = decisions._follow

    def drop_first(store: Store, made: Sequence[Decision]) -> list[bool]:
        store.settle([one.closed for one in made if isinstance(one.closed, Drop)])
        return follow(store, [one._replace(closed=None) for one in made])

    patch.setattr(decisions, "_follow", drop_first)


def handler_runs_though_there_is_an_outcome(patch: Patch) -> None:
    sort = Settler.sort

    def run_all(self: Settler, taken: Sequence[ClaimedJob]) -> Triage:
        return sort(self, [ClaimedJob(job._replace(outcome=b""), before) for job, before in taken])

    patch.setattr(Settler, "sort", run_all)


def outcome_hops(patch: Patch) -> None:
    def hop(move: Move) -> Job:
        row = moved(move)
        return row._replace(pos_us=move.at_us, hop=row.hop + 1) if move.outcome else row

    patch.setattr(stepped_store, "moved", hop)


def any_token_decides(patch: Patch) -> None:
    def always(found: Found | None, change: Change) -> bool:
        same = change._replace(token=found.job.token) if found else change
        return holds(found, same)

    patch.setattr(cluster, "holds", always)


def dead_row_is_told_from_the_repeater(patch: Patch) -> None:
    grave = completion._dead_row

    def told(job: Job, end: completion.Finish) -> Job:
        return grave(job, end)._replace(fence=job.fence)

    patch.setattr(completion, "_dead_row", told)


def history_is_told_twice(patch: Patch) -> None:
    def attempts(streams: Streams, queue: str, shards: int) -> Iterator[Attempt]:
        assert shards == 1
        page = streams.tail(queue + history.HISTORY_SUFFIX, 0, after=None, limit=1000)
        return iter([decode(row.body, Attempt) for row in page.rows])

    patch.setattr(job_runs, "attempts", attempts)
