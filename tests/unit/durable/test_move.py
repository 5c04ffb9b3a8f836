"""Durable functions of a store that moves."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Event, Thread

import pytest

from dueline import Dueline, DurableContext
from dueline.admin.move import Moved, Mover
from dueline.core.attempt import Stop
from dueline.core.call_options import read_options
from dueline.core.errors import NotFound, StoreMoved
from dueline.core.pagination import records_in
from dueline.core.store import Move, Store
from dueline.durable.stopped import stopped_in
from dueline.jobs import function_list
from dueline.jobs.function_list import inbox_of
from tests.harness.clocks import HandClock
from tests.harness.durable_stage import DurableStage
from tests.harness.queues import queues_on
from tests.harness.world import store_on

PAIRS = [
    pytest.param(("memory", "memory"), marks=pytest.mark.memory),
    pytest.param(("sqlite", "steps"), marks=pytest.mark.sqlite),
    pytest.param(("steps", "sqlite"), marks=pytest.mark.sqlite),
]
LARGE = 20_000


@pytest.fixture
def clock() -> HandClock:
    """Make the clock of both stores."""
    return HandClock()


@pytest.fixture(params=PAIRS)
def stores(
    request: pytest.FixtureRequest, tmp_path: Path, clock: HandClock
) -> Iterator[tuple[Store, Store]]:
    """Open two empty stores."""
    old, new = request.param
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    with (
        closing(store_on(old, tmp_path / "old", clock)) as first,
        closing(store_on(new, tmp_path / "new", clock)) as second,
    ):
        yield first, second


def declare(app: Dueline, stage: DurableStage) -> None:
    """Declare a function that sleeps, and then takes a signal."""

    def make() -> str:
        stage.effect("make")
        return "x" * LARGE

    @app.durable(name="run")
    def run(ctx: DurableContext) -> list[object]:
        ctx.state("asleep")
        text: str = ctx.step(make, name="make")
        ctx.sleep(3600)
        return [len(text), ctx.wait_signal("go")]


def move(
    old: Store,
    new: Store,
    clock: HandClock,
    report: Callable[[str, Moved], None] = lambda *_: None,
) -> None:
    """Move all jobs of a store to another one."""
    engines = queues_on(old, clock), queues_on(new, clock)
    Mover(*engines, ("old", "new"), clock=clock, report=report).run()


def test_a_stopped_function_is_listed_in_the_other_store(
    stores: tuple[Store, Store], clock: HandClock
) -> None:
    old = DurableStage(stores[0], clock, declare)
    old.begin()
    old.turn(old.onlooker)
    (row,) = stores[0].find([old.job._id])
    assert row is not None
    options = read_options(row.opts)
    assert options.durable is not None
    stop = Stop("code", "its code does not fit", row.at_us, row.at_us)
    opts = options.changed(durable=options.durable._replace(stop=stop)).to_bytes()
    token = queues_on(stores[0], clock).engine.ids.token()
    stopped = Move(row, row.at_us, token, row.lane.bucket, 0, 0, opts=opts)
    assert stores[0].settle([stopped]) == [True]
    move(*stores, clock)
    engine = queues_on(stores[1], clock).engine
    assert [job.id for job, _ in stopped_in(engine, row.lane.queue)] == [row.id]


def test_a_function_sleeps_in_one_store_and_ends_in_the_other(
    stores: tuple[Store, Store], clock: HandClock
) -> None:
    """Move the store while the function sleeps, with a signal in its inbox."""
    old = DurableStage(stores[0], clock, declare)
    old.begin()
    old.turn(old.onlooker)
    old.job.signal("go", 7)
    recorded = old.recorded()
    assert [step.name for step in recorded] == ["make", ""]
    late = old.process(stores[0]).job(old.job.id)
    move(*stores, clock)
    clock.advance(10)
    with pytest.raises((StoreMoved, NotFound)):
        late.signal("go", 8)
    new = DurableStage(stores[1], clock, declare)
    new.job = new.onlooker.job(old.job.id)
    assert new.recorded() == recorded
    assert new.job.state == "asleep"
    assert [job_id.hex() for job_id, _ in function_list.listed(stores[1])] == [new.job.id]
    clock.advance(3600)
    new.turn(new.onlooker)
    assert new.outcome() == [LARGE, 7]
    assert not new.effects
    assert list(function_list.listed(stores[0])) == []
    assert not list(records_in(stores[0], inbox_of(new.job._id)))


@pytest.mark.parametrize("is_step", [False, True])
def test_calls_end_in_both_stores_and_their_function_goes_on(
    stores: tuple[Store, Store], clock: HandClock, *, is_step: bool
) -> None:
    """Move while a call runs; another one ends in the new store before its function is there."""
    # rules D3, X6
    has_begun, may_end = Event(), Event()

    def declare_calls(app: Dueline, _: DurableStage) -> None:
        @app.task(name="slow")
        def slow() -> str:
            has_begun.set()
            assert may_end.wait(60)
            return "slow"

        @app.task(name="soon")
        def soon() -> str:
            return "soon"

        @app.durable(name="run")
        def run(ctx: DurableContext) -> list[str]:
            values: list[str] = ctx.gather([slow.call(), soon.using(after=5).call()])
            return [*values, ctx.call(soon)]

    old = DurableStage(stores[0], clock, declare_calls)
    new = DurableStage(stores[1], clock, declare_calls)
    if is_step:
        flow = old.onlooker.start(old.onlooker.task_named("run").step())
        old.job = flow.step(0)
    else:
        old.begin()
    running = Thread(target=old.turn, args=(old.process(stores[0]),))
    running.start()
    assert has_begun.wait(60)

    def end(text: str, moved: Moved) -> None:
        if text == "moving jobs" and moved.jobs and not may_end.is_set():
            clock.advance(5)
            new.turn(new.onlooker)
            may_end.set()
            running.join(60)

    move(*stores, clock, end)
    new.job = new.onlooker.job(old.job.id)
    new.turn(new.onlooker)
    assert new.outcome() == ["slow", "soon", "soon"]
