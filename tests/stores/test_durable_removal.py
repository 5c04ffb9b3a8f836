"""Records of durable functions that ended are deleted, and those of others stay."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dueline import Dueline, DurableContext, Retry
from dueline.core.errors import StoreUnavailable
from dueline.core.pagination import record_at
from dueline.core.store import Delete, Put
from dueline.durable.removal import remove_ended_functions
from dueline.jobs import function_list, results
from dueline.jobs.bulk import drop_dead
from dueline.jobs.function_list import inbox_of, partition_of, values_of
from tests.harness.addresses import IN_MEMORY, LONG_ON_CASSANDRA, world_of
from tests.harness.durable_stage import DisturbedStore, DurableStage
from tests.harness.lives import Stopped

DAY_S = 86_400.0
HOUR_S = 3_600.0
LARGE = 20_000


def declare(app: Dueline, stage: DurableStage) -> None:
    """Declare a function with a record of each kind."""

    @app.durable(name="run", retry=Retry(attempts=1))
    def run(ctx: DurableContext, how: str) -> int:
        ctx.state("begun")
        text: str = ctx.step("x".__mul__, LARGE, name="large")
        word: str = ctx.wait_signal("go", default="", timeout=30 * DAY_S)
        if how == "fails":
            raise ValueError(word)
        return len(text)


@pytest.fixture(params=[*IN_MEMORY, *LONG_ON_CASSANDRA])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DurableStage]:
    """Make an empty store of each kind, and a function that waits for a signal."""
    with world_of(request.param, tmp_path) as world:
        world.clock.advance(-HOUR_S)  # Cassandra deletes at its own time what was put at this one
        yield DurableStage(world.store, world.clock, declare)


def maintain(stage: DurableStage) -> int:
    """Run a round of the removal; return how many functions it removed."""
    removed, after = 0, None
    stage.clock.advance(1)
    while True:
        acts, after, *_ = remove_ended_functions(stage.onlooker.engine, after)
        removed += acts
        if after is None:
            return removed


def names_of(stage: DurableStage) -> list[str]:
    """Return the keys of all records of the function."""
    job_id = stage.job._id
    parts = inbox_of(job_id), partition_of(job_id, 0), values_of(job_id, 0)
    return [
        record.key for part in parts for record in stage.store.read(part, after=None, limit=100)
    ]


def listed(stage: DurableStage) -> list[str]:
    """Return the ids of the functions in the list."""
    return [job_id.hex() for job_id, _ in function_list.listed(stage.store)]


def forget_outcome(stage: DurableStage) -> None:
    """Delete the outcome; servers expire records by their own clocks."""
    partition, key = results._place(stage.job._id)
    assert record_at(stage.store, partition, key)
    stage.store.commit(partition, [Delete(key)])


def finish(stage: DurableStage, how: str) -> None:
    """Run a function to its end."""
    stage.begin(how)
    stage.turn(stage.onlooker)
    stage.job.signal("go", "on")
    stage.turn(stage.onlooker)


def test_a_function_that_waits_keeps_its_records(stage: DurableStage) -> None:
    """Maintain while it waits for days."""
    stage.begin("returns")
    assert listed(stage) == []
    for _ in range(4):
        stage.turn(stage.onlooker)
        assert listed(stage) == [stage.job.id]
        assert maintain(stage) == 0
        stage.clock.advance(2 * DAY_S)
    stage.job.signal("go")
    stage.turn(stage.onlooker)
    assert stage.outcome() == LARGE


def test_records_go_after_the_outcome_twice(stage: DurableStage) -> None:
    """Delete the outcome, then let a late write land after the first removal."""
    # rule D15
    finish(stage, "returns")
    assert stage.outcome() == LARGE
    assert maintain(stage) == 0
    assert len(names_of(stage)) == 8
    forget_outcome(stage)
    assert maintain(stage) == 1
    assert names_of(stage) == []
    assert listed(stage) == []
    stage.store.commit(partition_of(stage.job._id, 0), (Put("00009", b"late", b"{}\n"),))
    assert maintain(stage) == 0
    stage.clock.advance(DAY_S + 1)
    assert maintain(stage) == 1
    assert names_of(stage) == []
    stage.clock.advance(2 * DAY_S)
    assert maintain(stage) == 0
    assert list(function_list.entries_after(stage.store, "")) == []


def test_a_dead_function_keeps_its_records_with_its_dead_letter_job(stage: DurableStage) -> None:
    """Maintain beside the dead-letter job, then delete that."""
    finish(stage, "fails")
    assert stage.job.status == "dead"
    stage.clock.advance(100 * DAY_S)
    assert maintain(stage) == 0
    assert names_of(stage)
    row = stage.onlooker.queues.find(stage.job._id).row
    assert row is not None
    assert sum(page.done for page in drop_dead(stage.onlooker.engine, [row])) == 1
    assert maintain(stage) == 1
    assert names_of(stage) == []


def test_a_function_is_listed_before_its_first_record(stage: DurableStage) -> None:
    """Stop the first claim, and the sender of a first signal, at each call of the store."""
    for is_claim in (True, False):
        at, is_stopped = 0, True
        while is_stopped:
            at += 1
            stage.begin("returns")
            store = DisturbedStore(stage.store, at, "stop", lambda: None)
            process = stage.process(store)
            if is_claim:
                stage.turn(process, store)
            else:
                with suppress(Stopped):
                    process.job(stage.job.id).signal("go")
            is_stopped = store.is_dead
            assert not names_of(stage) or stage.job.id in listed(stage)
        assert at > 3
        assert listed(stage).count(stage.job.id) == 1


@pytest.mark.parametrize("how", ["stop", "failed"])
def test_a_removal_that_is_stopped_is_repeated(stage: DurableStage, how: str) -> None:
    """Stop the removal at each call of the store."""
    for is_second in (False, True):
        finish(stage, "returns")
        forget_outcome(stage)
        if is_second:
            maintain(stage)
            stage.clock.advance(2 * DAY_S)
        stage.clock.advance(1)
        at, is_stopped = 0, True
        while is_stopped:
            at += 1
            store = DisturbedStore(stage.store, at, how, lambda: None)
            engine = stage.process(store).engine
            try:
                remove_ended_functions(engine, None)
                is_stopped = False
            except (Stopped, StoreUnavailable):
                assert not names_of(stage) or list(function_list.entries_after(stage.store, ""))
        assert names_of(stage) == []
        assert listed(stage) == []


def test_a_removal_steps_over_damaged_records(stage: DurableStage) -> None:
    """Damage the list, an outcome and an inbox; the functions listed after them still go."""
    junk = b"\x00 not JSON"
    finish(stage, "returns")
    damaged = stage.job._id
    ((place, _), *_) = function_list.entries_after(stage.store, "")
    partition, key = results._place(damaged)
    now_us = stage.onlooker.engine.time.latest_us() + 1
    stage.store.commit(partition, (Put(key, b"a", junk, at_us=now_us),))
    for _ in range(2):
        finish(stage, "returns")
        forget_outcome(stage)
    ended = stage.job._id
    keys = place.job_id.hex(), "no id"
    puts = [Put(key, b"a", junk, at_us=now_us) for key in keys]
    stage.store.commit(place.partition, puts)
    stage.store.commit(inbox_of(ended), (Put("generation/first", b"a", junk),))
    for part in ("functions", function_list._minutes_in(function_list._day_of(place.minute))):
        stage.store.commit(part, (Put("junk", b"a", junk),))
    assert maintain(stage) == 2
    assert names_of(stage) == []
    assert record_at(stage.store, partition_of(damaged, 0), "00001"), "its outcome may be kept"
    named = [each.place for each in function_list.unreadable_in(stage.store, most=100)]
    assert named == [f"record {place.partition}/{key}" for key in keys]
    stage.store.commit(partition, [Delete(key)])
    assert maintain(stage) == 1
    assert len(list(function_list.unreadable_in(stage.store, most=100))) == 1
