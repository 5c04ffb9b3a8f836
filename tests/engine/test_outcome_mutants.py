"""Each rule of ending, carrying and adding is needed: without it some test fails."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from dueline import finishing, history
from dueline.attempt import Attempt
from dueline.codec import decode
from dueline.finishing import Finished, effects
from dueline.ids import Ids
from dueline.job import Job
from dueline.lane import Lane
from dueline.marks import LaneList, Shard
from dueline.recall import key_of
from dueline.store import Drop, Group, Move, Store, Streams
from dueline.stores import memory_cluster, memory_steps
from dueline.stores.memory_cluster import Node
from dueline.stores.memory_rows import Change, Found, holds, moved
from dueline.stores.memory_steps import SteppedMemoryStore
from dueline.worker import settler
from dueline.worker.claimer import Taken
from dueline.worker.worker import Worker
from tests.engine import test_outcome_first as outcome_first
from tests.engine import test_races as races

Patch = pytest.MonkeyPatch
Mutant = Callable[[Patch], None]


def stopped(*names: str) -> Callable[[], None]:
    """Stop workers of some lives at each step."""

    def lead() -> None:
        for name in names:
            outcome_first.test_a_job_has_one_end_wherever_its_worker_is_stopped(name)

    return lead


# --- ending ----------------------------------------------------------------------------------


def write(store: Store, ends: Sequence[Finished]) -> None:
    """Write effects without the row that tells of them."""
    for job, end in ends:
        group = effects(job, end)
        for commit in group.commits:
            store.commit(commit.partition, commit.writes)
        store.add(group.jobs)
        store.append(group.rows)


def others_first(store: Store, others: Sequence[Group]) -> list[bool]:
    """Apply what goes beside the ends, as the engine does."""
    store.append([row for group in others for row in group.rows])
    return list(store.settle([verdict for group in others for verdict in group.verdicts]))


def effects_before_the_outcome(patch: Patch) -> None:
    def finish(
        store: Store, ends: Sequence[Finished], others: Sequence[Group], _ids: Ids
    ) -> list[bool]:
        write(store, ends)
        held = list(store.settle([Drop(job) for job, _ in ends]))
        return held + others_first(store, others)

    patch.setattr(settler, "finish", finish)


def drop_before_the_effects(patch: Patch) -> None:
    def finish(
        store: Store, ends: Sequence[Finished], others: Sequence[Group], _ids: Ids
    ) -> list[bool]:
        held = list(store.settle([Drop(job) for job, _ in ends]))
        write(store, [end for end, sure in zip(ends, held, strict=True) if sure])
        return held + others_first(store, others)

    patch.setattr(settler, "finish", finish)


def drop_before_the_repeated_effects(patch: Patch) -> None:
    def complete(store: Store, ends: Sequence[Finished]) -> None:
        store.settle([Drop(job) for job, _ in ends])
        write(store, ends)

    patch.setattr(finishing, "complete", complete)
    patch.setattr(settler, "complete", complete)


def handler_runs_though_there_is_an_outcome(patch: Patch) -> None:
    take = Worker._take

    def run_all(self: Worker, taken: Sequence[Taken]) -> None:
        take(self, [Taken(job._replace(outcome=b""), before) for job, before in taken])

    patch.setattr(Worker, "_take", run_all)


def outcome_hops(patch: Patch) -> None:
    def hop(move: Move) -> Job:
        row = moved(move)
        return row._replace(pos_us=move.at_us, hop=row.hop + 1) if move.outcome else row

    patch.setattr(memory_steps, "moved", hop)


def any_token_decides(patch: Patch) -> None:
    def always(found: Found | None, change: Change) -> bool:
        same = change._replace(token=found.job.token) if found else change
        return holds(found, same)

    patch.setattr(memory_cluster, "holds", always)


def dead_row_is_told_from_the_repeater(patch: Patch) -> None:
    grave = finishing._grave

    def told(job: Job, end: finishing.Finish) -> Job:
        return grave(job, end)._replace(fence=job.fence)

    patch.setattr(finishing, "_grave", told)


def history_is_told_twice(patch: Patch) -> None:
    def attempts(streams: Streams, queue: str, shards: int) -> Iterator[Attempt]:
        assert shards == 1
        page = streams.tail(queue + history.HISTORY_SUFFIX, 0, after=None, limit=1000)
        return iter([decode(row.body, Attempt) for row in page.rows])

    patch.setattr(outcome_first, "attempts", attempts)


# --- carrying and adding ---------------------------------------------------------------------


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


def no_look(patch: Patch) -> None:
    def acknowledge(
        self: LaneList, listings: dict[Lane, int], write: Callable[[], object]
    ) -> tuple[object, frozenset[Lane]]:
        self._read_unseen({Shard(lane.queue, lane.shard) for lane in listings})
        self._list(listings)
        return write(), frozenset()

    patch.setattr(LaneList, "acknowledge", acknowledge)


def a_second_row_where_the_bucket_was_closed(patch: Patch) -> None:
    add = SteppedMemoryStore.add

    def add_anew(self: SteppedMemoryStore, jobs: Sequence[Job]) -> Sequence[bool]:
        held = add(self, jobs)
        shards = {(job.lane.queue, job.lane.shard) for job in jobs}
        closed = {place: self._node.marks(Shard(*place)).closed for place in shards}
        late = [job for job in jobs if job.lane.bucket <= closed[job.lane.queue, job.lane.shard]]
        if late:
            add(
                self,
                [
                    job._replace(
                        lane=job.lane._replace(bucket=closed[job.lane.queue, job.lane.shard] + 1),
                        hop=job.hop + 1,
                    )
                    for job in late
                ],
            )
        return held

    patch.setattr(SteppedMemoryStore, "add", add_anew)


def emptiness_from_the_claimers_memory(patch: Patch) -> None:
    sweep = SteppedMemoryStore.sweep
    read = Node.ats_us

    def sweep_by_memory(self: SteppedMemoryStore, *args: str, **terms: int) -> object:
        def ats_us(_node: Node, lane: Lane) -> Iterator[int]:
            memory = self._recall._memories.get(lane)
            if memory is None:
                return read(self._node, lane)
            return iter([seen.at_us for seen in memory.rows.values()])

        patch.setattr(Node, "ats_us", ats_us)
        return sweep(self, *args, **terms)  # type: ignore[arg-type]  # passed on as they came

    patch.setattr(SteppedMemoryStore, "sweep", sweep_by_memory)


def a_dropped_key_lives_again(patch: Patch) -> None:
    bear = Node._bear

    def bear_again(self: Node, lane: Lane, job: Job) -> None:
        if key_of(job) not in self.cluster.rows.get(lane, {}):
            self.cluster.births.get(lane, {}).pop(key_of(job), None)
        bear(self, lane, job)

    patch.setattr(Node, "_bear", bear_again)


NOTICED: dict[Mutant, Callable[[], None]] = {
    effects_before_the_outcome: stopped("done"),
    drop_before_the_effects: stopped("done"),
    drop_before_the_repeated_effects: stopped("done"),
    handler_runs_though_there_is_an_outcome: stopped("done"),
    outcome_hops: stopped("dead"),
    any_token_decides: (lambda: races.test_a_late_worker_and_the_next_claimer_make_one_end("done")),
    dead_row_is_told_from_the_repeater: stopped("dead"),
    history_is_told_twice: stopped("retried", "poison for children"),
    carried_without_a_stub: races.test_a_dead_job_is_one_job_wherever_its_redrive_is_stopped,
    stub_goes_before_its_target_comes: (
        races.test_a_dead_job_is_one_job_wherever_its_redrive_is_stopped
    ),
    no_look: races.test_a_late_job_is_listed_whatever_a_sweep_does_meanwhile,
    a_second_row_where_the_bucket_was_closed: (
        races.test_a_late_job_is_listed_whatever_a_sweep_does_meanwhile
    ),
    emptiness_from_the_claimers_memory: (
        races.test_a_sweep_sees_what_its_claimer_does_not_remember
    ),
    a_dropped_key_lives_again: (
        races.test_a_job_that_was_done_is_not_run_again_when_it_is_added_again
    ),
}


@pytest.mark.mutants
@pytest.mark.parametrize("mutant", NOTICED, ids=lambda mutant: mutant.__name__)
def test_without_its_rule_a_test_fails(mutant: Mutant, monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    try:
        NOTICED[mutant]()
    except Exception:  # noqa: BLE001  a test may fail in any way
        return
    raise AssertionError(f"nobody notices: {mutant.__name__}")
