"""The audit of a move: each job is in one store, and each planted fault is found (H18)."""

from collections.abc import Callable, Iterator

import pytest

from dueline.admin.move_audit import NOT_KNOWN, MoveAudit
from dueline.core.attempt import Crashed, Ended, Outcome
from dueline.core.call_options import CallOptions, OrderPlace
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.errors import Conflict
from dueline.core.job import Job, JobId
from dueline.core.store import Delete, Drop, Put
from dueline.jobs import chunk_records, history, orders, results
from dueline.jobs.bulk import delete_dead, sum_of
from dueline.jobs.queue import EnqueueRequest
from dueline.tasks.chunks import Emitted
from tests.harness.two_stores import PAIRS, Two, two
from tests.harness.unique_jobs import keyed
from tests.harness.world import World


@pytest.fixture(params=PAIRS)
def stores(request: pytest.FixtureRequest) -> Iterator[Two]:
    """Two empty stores."""
    with two(request.param) as made:
        yield made


def audit(stores: Two) -> MoveAudit:
    """Audit the move, as the command does later."""
    mover = stores.mover()
    assert mover.is_done()
    return mover.audit()


def retried(world: World, **options: str) -> Job:
    """Have an attempt fail, and its event recorded; return the row."""
    job = world.claim(world.put(**options), start=True)  # type: ignore[arg-type]
    ended = Ended(job, Crashed(""), job.claimed_us, world.now_us)
    attempt = history.attempt_of(ended, outcome="retried", error="ValueError: no")
    world.store.append([history.row_of(attempt, job)])
    world.back(job, after_s=60, errors=1, error="ValueError: no")
    return world.row(job.id)


def ended(world: World, value: str = "1", **options: str) -> JobId:
    """Have a job end."""
    job = world.claim(world.put(**options))  # type: ignore[arg-type]
    world.end(job, Outcome("done", world.now_us, value=value))
    return job.id


def moved(stores: Two, *, keeps: str = "all", has_keys: bool = False) -> tuple[JobId, Job, JobId]:
    """Move jobs that have ended, failed and never run."""
    old = stores.old
    for queue in "qwx":
        old.queues.engine.catalog.configure(queue, history=keeps)
    done, failed = ended(old), retried(old, queue="w")
    waits = old.put(queue="x", after_s=90)
    if has_keys:
        opts = CallOptions(order=OrderPlace("a")).to_bytes()
        rows = old.queues.enqueue(EnqueueRequest("q", "t", 0, [b"[1]"] * 2, opts=opts))
        stores.clock.advance(2)
        orders.postpone(old.queues.engine, [old.claim(rows[1].id)])
        old.queues.enqueue(keyed(1, due_us=old.now_us + 90 * SECOND_US))
    stores.clock.advance(1)
    stores.mover().run()
    return done, failed, waits


def test_jobs_are_counted_where_they_are(stores: Two) -> None:
    old, new = stores.old, stores.new
    done, failed, _ = moved(stores)
    dead = retried(new, queue="new")  # not of the old store
    said = audit(stores)
    assert said.findings == []
    assert said.jobs == {
        "done in the old store": 1, "retrying in the new store": 1, "scheduled in the new store": 1,
    }  # fmt: skip
    assert said.moved == 2
    assert said.not_known == []
    stores.clock.advance(100)
    stores.run_due(new)
    said = audit(stores)
    assert said.findings == []
    assert said.jobs == {"done in the old store": 1, "done in the new store": 2}
    assert {done, failed.id, dead.id} & stores.ran.keys() == {failed.id, dead.id}
    assert old.store is not new.store


def test_what_happened_before_is_found_in_the_new_store(stores: Two) -> None:
    _, failed, _ = moved(stores)
    stores.clock.advance(100)
    stores.run_due(stores.new)
    engine = stores.new.other().engine
    shards = engine.catalog.settings("w").shards_read
    events = [
        (event.fence, event.outcome)
        for event in history.attempts(engine.store, "w", shards, everything=True)
        if event.job == failed.id.hex()
    ]
    assert sorted(events) == [(0, "enqueued"), (1, "retried"), (2, "done")]


def test_chunks_of_unfinished_and_ended_jobs_move(stores: Two) -> None:
    old = stores.old
    for queue in ("q", "w"):
        job = old.claim(old.put(queue=queue))
        emitted = [Emitted(job.claim(), number, 1, str(number)) for number in (1, 2)]
        write = chunk_records.written(emitted, now_us=old.now_us, version=b"1" * 16)
        old.store.commit(*write)
        if queue == "q":
            old.back(job, after_s=60)
        else:
            old.end(job, Outcome("done", old.now_us))
        before = chunk_records.read(old.store, job.id, None)
        assert len(before) == 2
        stores.ran[job.id] = 0
    stores.mover().run()
    for job_id in stores.ran:
        assert [chunk.data for chunk in chunk_records.read(stores.new.store, job_id, None)] == [
            "1",
            "2",
        ]


def lose(stores: Two) -> str:
    """Delete the row of a moved job."""
    (row,) = (row for row in stores.rows(stores.new) if row.lane.queue == "x")
    assert stores.new.store.settle([Drop(row)]) == [True]
    return "has not ended and has no row"


def lose_its_end(stores: Two) -> str:
    """Delete the row of a job that failed before."""
    (row,) = (row for row in stores.rows(stores.new) if row.lane.queue == "w")
    assert stores.new.store.settle([Drop(row)]) == [True]
    return "has not ended and has no row"


def double(stores: Two) -> str:
    """Insert the row of a moved job in the old store again."""
    (row,) = (row for row in stores.rows(stores.new) if row.lane.queue == "x")
    stores.old.store.add([row._replace(hop=row.hop + 1)])
    return "has a row in both stores"


def leave(stores: Two) -> str:
    """Have a job in the old store that the move did not see."""
    (row,) = (row for row in stores.rows(stores.new) if row.lane.queue == "x")
    late = row._replace(id=JobId(b"late" * 4), pos_us=stores.old.now_us)
    stores.old.store.add([late])
    return "is still in the old store"


def change_a_result(stores: Two) -> str:
    """Change the result of a job that ended in the old store."""
    return change(stores, "done", "2", "has another end in the new store than in the old one")


def change_a_state(stores: Two) -> str:
    """Change how a job ended in the old store."""
    return change(stores, "cancelled", "", "ended in two ways under one claim")


def change(stores: Two, state: str, value: str, words: str) -> str:
    """Change the outcome in the new store of the job that ended."""
    (event,) = (
        event for event in history.attempts(stores.old.store, "q", 1) if event.outcome == "done"
    )
    outcome = Outcome(state, event.ended_us, value=value)  # type: ignore[arg-type]
    commit = results.keep(JobId(bytes.fromhex(event.job)), outcome, keep_us=DAY_US)
    (put,) = commit.writes
    assert isinstance(put, Put)
    stores.new.store.commit(commit.partition, [put._replace(at_us=None)])
    return words


def start_again(stores: Two) -> str:
    """Insert a job in the new store that has ended in the old one."""
    (event,) = (attempt for attempt in history.attempts(stores.old.store, "q", 1) if attempt.worker)
    (row,) = (row for row in stores.rows(stores.new) if row.lane.queue == "x")
    again = row._replace(
        id=JobId(bytes.fromhex(event.job)), lane=row.lane._replace(queue="q"),
        enqueued_us=event.enqueued_us,
    )  # fmt: skip
    stores.new.store.add([again])
    return "ended in the old store, and has a row in the new one"


def end_again(stores: Two) -> str:
    """Let the job that was started again end."""
    start_again(stores)
    stores.clock.advance(100)
    stores.run_due(stores.new)
    stores.run_due(stores.new)
    return "has another end in the new store than in the old one"


def forget_the_history(stores: Two) -> str:
    """Have the history of a moved job in the old store only."""
    (row,) = (row for row in stores.rows(stores.new) if row.lane.queue == "x")
    event = history.happened(row, "changed", row.enqueued_us)
    stores.old.store.append([history.row_of_event(event, row, b"x")])
    return "has events in the history of the old store only"


def run_once_again(stores: Two) -> str:
    """Start a job of a queue that delivers at most once, which failed in the old store."""
    stores.new.other().engine.catalog.configure("w", deliver="at_most_once")
    stores.clock.advance(100)
    stores.run_due(stores.new)
    return "was started again, and may be started only once"


def hold_a_key_twice(stores: Two) -> str:
    """Insert a second job with a unique key."""
    (row,) = (row for row in stores.rows(stores.new) if b"unique" in row.opts)
    stores.new.store.add([row._replace(id=JobId(b"twin" * 4))])
    return "holds a unique key that another job holds"


def lose_a_place(stores: Two) -> str:
    """Delete the entry of a job that waits for its turn."""
    partition = orders.partition_of("q", "a")
    records = stores.new.store.read(partition, after=None, limit=9)
    stores.new.store.commit(partition, [Delete(records[-1].key)])
    return "has lost its place in the order of its key"


def start_too_early(stores: Two) -> str:
    """Have an attempt of an order key in the old store end after one has begun in the new one."""
    first, second = sorted(
        (row for row in stores.rows(stores.new) if b"order" in row.opts), key=lambda row: row.id
    )
    stores.clock.advance(100)
    job = stores.new.claim(second.id)
    stores.new.end(job, Outcome("done", stores.new.now_us))
    at_us = stores.new.now_us + 60 * SECOND_US
    late = Ended(first._replace(worker="w", fence=1), Crashed(""), 1, at_us)
    event = history.attempt_of(late, outcome="retried", error="")
    for world in (stores.old, stores.new):
        world.store.append([history.row_of(event, first)])
    return "was started before a job of its order key ended in the old store"


FAULTS = [lose, lose_its_end, double, leave, change_a_result, change_a_state, start_again,
          end_again, forget_the_history, run_once_again, hold_a_key_twice, lose_a_place,
          start_too_early]  # fmt: skip


@pytest.mark.parametrize("plant", FAULTS)
def test_each_planted_fault_is_found(plant: Callable[[Two], str]) -> None:
    with two(("sqlite", "steps")) as stores:
        moved(stores, has_keys=plant in (hold_a_key_twice, lose_a_place, start_too_early))
        words = plant(stores)
        said = audit(stores)
        assert words in said.counts, said.counts
        assert all(finding.job_id for finding in said.findings)


def test_what_the_histories_do_not_have_is_said_and_not_claimed(stores: Two) -> None:
    """A job that is gone may have ended: whether a result of it was kept is not known any more."""
    old, new = stores.old, stores.new
    moved(stores, keeps="attempts")
    lose(stores)
    said = audit(stores)
    assert said.counts == {"has not ended and has no row": 1}  # its result would be kept
    assert any("left no trace" in words for words in said.not_known)
    stores.clock.advance(100)
    stores.run_due(new)
    stores.clock.advance(2 * DAY_US // SECOND_US)
    said = audit(stores)
    assert not said.has_failed
    assert said.jobs[NOT_KNOWN] == 1
    for world in (old, new):
        engine = world.other().engine
        for queue in "qwx":
            version = engine.ids.token()
            history.forget(engine.store, queue, 1, before_us=world.now_us, version=version)
    said = audit(stores)
    assert not said.has_failed
    assert any("has deleted are not judged" in words for words in said.not_known)
    assert any("no longer begins at the move" in words for words in said.not_known)


def test_a_move_that_is_not_done_is_not_audited(stores: Two) -> None:
    stores.old.put()
    with pytest.raises(Conflict, match="not done"):
        stores.mover().audit()


def test_a_dead_job_that_was_deleted_is_not_lost(stores: Two) -> None:
    stores.old.queues.engine.catalog.configure("q", history="all")
    job_id = stores.old.put()
    stores.old.die(job_id)
    stores.mover().run()
    queues = stores.new.other()
    assert sum_of(delete_dead(queues, [stores.new.row(job_id)])).done == 1
    assert audit(stores).jobs == {"deleted after its death": 1}
