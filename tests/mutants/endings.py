"""Rules of ending a job, broken."""

from collections.abc import Iterator, Mapping, Sequence

import pytest

from dueline.core.attempt import Attempt, Ended
from dueline.core.codec import decode
from dueline.core.job import Job
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Drop, Group, Move, Store, Streams
from dueline.jobs import completion, history
from dueline.jobs.completion import Decision, Finished, effects
from dueline.jobs.history import AttemptAndJob
from dueline.stores.row_updates import moved
from dueline.worker import settler
from dueline.worker.claimer import ClaimedJob
from dueline.worker.triage import Triage
from dueline.worker.worker import Worker
from tests.harness import cluster, job_runs, stepped_store
from tests.harness.row_changes import Change, Found, holds

Patch = pytest.MonkeyPatch


def write(store: Store, ends: Sequence[Finished]) -> None:
    """Write effects without the row that tells of them."""
    for job, end in ends:
        group = effects(job, end)
        for commit in group.commits:
            store.commit(commit.partition, commit.writes)
        store.add(group.jobs)
        store.append(group.rows)


def the_key_of_a_retried_job_is_released(patch: Patch) -> None:
    finish = completion.finish_together

    def finish_and_release(
        store: Store,
        done: Sequence[Ended],
        settings: Mapping[str, QueueSettings],
        ends: Sequence[Finished],
        others: Sequence[Group],
        *,
        noted: Sequence[AttemptAndJob] = (),
    ) -> bool:
        completion.release(store, [one.job for group in others for one in group.verdicts])
        return finish(store, done, settings, ends, others, noted=noted)

    patch.setattr(settler, "finish_together", finish_and_release)


def others_first(store: Store, others: Sequence[Group]) -> list[bool]:
    """Apply what goes beside the ends, as the engine does."""
    store.append([row for group in others for row in group.rows])
    return list(store.settle([verdict for group in others for verdict in group.verdicts]))


def effects_before_the_outcome(patch: Patch) -> None:
    def decide(store: Store, ends: Sequence[Finished], others: Sequence[Group]) -> Decision:
        write(store, ends)
        held = list(store.settle([Drop(job) for job, _ in ends]))
        return Decision(held + others_first(store, others), ())

    patch.setattr(settler, "decide_ends", decide)


def drop_before_the_effects(patch: Patch) -> None:
    def decide(store: Store, ends: Sequence[Finished], others: Sequence[Group]) -> Decision:
        held = list(store.settle([Drop(job) for job, _ in ends]))
        write(store, [end for end, sure in zip(ends, held, strict=True) if sure])
        return Decision(held + others_first(store, others), ())

    patch.setattr(settler, "decide_ends", decide)


def drop_before_the_repeated_effects(patch: Patch) -> None:
    def complete(store: Store, ends: Sequence[Finished]) -> None:
        store.settle([Drop(job) for job, _ in ends])
        write(store, ends)

    patch.setattr(completion, "complete", complete)
    patch.setattr(settler, "complete", complete)


def handler_runs_though_there_is_an_outcome(patch: Patch) -> None:
    sort = Worker._sorted

    def run_all(self: Worker, taken: Sequence[ClaimedJob]) -> Triage:
        return sort(self, [ClaimedJob(job._replace(outcome=b""), before) for job, before in taken])

    patch.setattr(Worker, "_sorted", run_all)


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
