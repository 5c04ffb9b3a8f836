"""Jobs that wait for jobs and workflows, on each kind of store (W14)."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dueline import (
    BadInput,
    Conflict,
    Dependency,
    Dueline,
    Duplicate,
    DurableContext,
    NotFound,
    Retry,
    Unique,
    group,
    pipeline,
)
from dueline import (
    wait_for as wait_signal,
)
from dueline.api.job_handle import Job
from dueline.core.call_options import Mode
from dueline.jobs.bulk import dead_before, drop_dead
from tests.harness.addresses import IN_MEMORY, LONG_ON_CASSANDRA, address
from tests.harness.programs import wait_for

WAIT_S = 60.0

WAITS = ("scheduled", "ready")
"""States of a job that waits for others: it is due when it checks them by itself (rule J4)."""

EVERY = [*IN_MEMORY, *LONG_ON_CASSANDRA]


class Shop:
    """An application whose tasks note what ran, and fail or wait as they are told.

    ran: the arguments of calls, in order. broken: arguments with which a call fails.
    """

    def __init__(self, url: str) -> None:
        """Open the store."""
        self.app = app = Dueline(url)
        self.ran: list[str] = []
        self.broken: set[str] = set()
        self.gate = threading.Event()
        self.started = threading.Event()

        @app.task(name="work", retry=Retry(attempts=1))
        def work(name: str, *, waits: bool = False) -> str:
            if waits:
                self.started.set()
                assert self.gate.wait(WAIT_S)
            self.ran.append(name)
            if name in self.broken:
                raise ValueError(name)
            return name

        @app.durable(name="run")
        def run(ctx: DurableContext, name: str) -> str:
            ctx.wait_signal("go")
            self.ran.append(name)
            return name

        self.work, self.run = work, run

    def after(self, awaited: Any, name: str = "b", **options: Any) -> Job[str]:  # noqa: ANN401
        """Enqueue a job that waits for others."""
        return self.work.using(depends_on=awaited, **options).enqueue(name)

    def burst(self) -> None:
        """Run what is due."""
        self.app.run_worker(burst=True, queues=self.app.engine.catalog.names())


@pytest.fixture(params=EVERY)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """Make an application on an empty store."""
    with address(request.param, tmp_path) as url:
        made = Shop(url)
        yield made
        made.gate.set()
        made.app.close()


def test_a_job_starts_after_jobs_that_wait_run_or_have_ended(shop: Shop) -> None:
    """Also jobs of another queue, by handle and by id."""
    first, other = shop.work.enqueue("a"), shop.work.using(queue="other").enqueue("o")
    waiting = shop.after([first, other.id])
    assert waiting.status in WAITS
    assert waiting.explain().reason == "jobs"
    assert first.id in str(waiting.explain())
    shop.burst()
    assert sorted(shop.ran[:2]) == ["a", "o"]
    assert shop.ran[2:] == ["b"]
    late = shop.after(first, "late")  # it has ended
    assert late.status == "ready"
    shop.burst()
    assert late.result(timeout=0) == "late"


def test_a_job_starts_at_once_after_one_that_runs(shop: Shop) -> None:
    """The worker is asked to look for dependents, since its copy of the row says nothing."""
    running = shop.work.enqueue("a", waits=True)
    with shop.app.worker():
        assert shop.started.wait(WAIT_S)
        waiting = [shop.after(running, f"b{number}") for number in range(3)]
        wait_for(lambda: shop.ran == [] and waiting[0].status == "scheduled", "it is postponed")
        shop.gate.set()
        assert [job.result(timeout=WAIT_S) for job in waiting] == ["b0", "b1", "b2"]
    assert shop.ran[0] == "a"
    assert sorted(shop.ran[1:]) == ["b0", "b1", "b2"]


def test_a_dead_job_holds_cancels_or_is_skipped(shop: Shop) -> None:
    """As the words of a group say; a retry goes on."""
    shop.broken.add("a")
    bad = shop.work.enqueue("a")
    early = {word: shop.after(Dependency(bad, word), word) for word in ("stop", "skip", "cancel")}
    shop.burst()
    late = {word: shop.after(Dependency(bad, word), word) for word in ("stop", "skip", "cancel")}
    shop.burst()
    assert shop.ran == ["a", "skip", "skip"]
    for jobs in (early, late):
        assert {word: job.status for word, job in jobs.items()} == {
            "stop": "scheduled",
            "skip": "done",
            "cancel": "cancelled",
        }
        assert jobs["stop"].explain().reason == "held"
        assert bad.id in str(jobs["cancel"].explain())
    assert {job.shown_state for job in shop.app.admin.list("task:work").jobs} >= {"held"}
    shop.broken.clear()
    bad.retry()
    shop.burst()
    assert shop.ran[3:] == ["a", "stop", "stop"]


def test_a_cancelled_job_cancels_those_that_wait(shop: Shop) -> None:
    """And those that wait for these, at once; what was skipped runs."""
    first = shop.work.using(after=600).enqueue("a")
    second = shop.after(first)
    third = shop.after(second, "c")
    skips = shop.after(Dependency([first, second], failures="skip"), "d")
    first.cancel()
    shop.burst()
    assert [job.status for job in (first, second, third)] == ["cancelled"] * 3
    assert skips.status == "done"
    assert shop.ran == ["d"]
    again = shop.after(first, "e")
    shop.burst()
    assert again.status == "cancelled"
    assert first.id in str(again.explain())


def test_a_waiting_job_is_cancelled_retried_and_rescheduled(shop: Shop) -> None:
    """An operator who moves it by hand does not start it early."""
    first = shop.work.using(after=600).enqueue("a")
    waiting, other, later = [shop.after(first, name) for name in "bcd"]
    assert waiting.cancel()
    other.retry()
    later.reschedule(after=900)
    shop.burst()
    assert (waiting.status, other.status in WAITS, shop.ran) == ("cancelled", True, [])
    first.retry()
    shop.burst()
    assert shop.ran == ["a", "c"]
    assert later.status == "scheduled"
    assert later.explain().reason == "scheduled"


def test_a_deleted_dead_job_cancels_those_that_wait(shop: Shop) -> None:
    """It cannot be retried any more."""
    shop.broken.add("a")
    bad = shop.work.enqueue("a")
    waiting = shop.after(bad)
    shop.burst()
    assert waiting.status in WAITS
    engine = shop.app.engine
    assert sum(page.done for page in drop_dead(engine, dead_before(engine, None, 2**60))) == 1
    waiting.retry()  # instead of its next check
    shop.burst()
    assert waiting.status == "cancelled"
    assert shop.ran == ["a"]


def test_a_job_waits_for_workflows_steps_and_functions(shop: Shop) -> None:
    """Each by its handle or its id."""
    flow = shop.app.start(pipeline(shop.work.step("a"), shop.work.step("x").alone()))
    function = shop.run.enqueue("f")
    after_step = shop.after(flow.step(0), "s")
    after_flow, by_id = shop.after(flow, "w"), shop.after(flow.id, "i")
    after_all = shop.after([flow, function, after_flow], "all")
    shop.burst()
    assert shop.ran.index("a") < shop.ran.index("s")
    assert shop.ran.index("x") < min(shop.ran.index("w"), shop.ran.index("i"))
    assert by_id.status == after_flow.status == after_step.status == "done"
    assert after_all.status in WAITS
    assert function.id in str(after_all.explain())
    function.signal("go")
    shop.burst()
    assert shop.ran[-2:] == ["f", "all"]


def test_steps_and_functions_wait_for_jobs(shop: Shop) -> None:
    """A function that waits has not begun, so it is cancelled at once."""
    first = shop.work.using(after=600).enqueue("a")
    flow = shop.app.start(
        pipeline(shop.work.using(depends_on=first).step("s"), shop.work.step("t").alone())
    )
    kept = shop.run.using(depends_on=[first]).enqueue("f")
    gone = shop.run.using(depends_on=[first]).enqueue("g")
    shop.burst()
    for job in (kept, gone):
        job.retry()
    shop.burst()  # claimed, and postponed again
    assert gone.cancel()
    assert gone.status == "cancelled"
    first.retry()
    kept.signal("go")
    shop.burst()
    assert flow.status == "done"
    assert sorted(shop.ran) == ["a", "f", "s", "t"]
    assert shop.ran[0] == "a"


def test_what_is_unknown_is_refused_and_nothing_is_stored(shop: Shop) -> None:
    """A job without a result, an id of no job, a job that will leave none."""
    shop.app.queue("quiet", keep=0)
    quiet = shop.work.using(queue="quiet").enqueue("a")
    shop.burst()
    for awaited in (quiet, "0" * 32):
        with pytest.raises(NotFound, match="no job can wait for it"):
            shop.after(awaited)
    running = shop.work.using(queue="quiet").enqueue("r", waits=True)
    early = shop.work.using(queue="quiet", after=600).enqueue("e")
    waiting = shop.after(early)  # its end is recorded for those that wait
    with shop.app.worker():
        assert shop.started.wait(WAIT_S)
        with pytest.raises(Conflict, match="no result of it is kept"):
            shop.after(running)
        shop.gate.set()
        early.retry()
        assert waiting.result(timeout=WAIT_S) == "b"
    assert [job.id for job in shop.app.admin.list("task:work").jobs] == []


def test_many_calls_and_awaited_ones_wait_too(shop: Shop) -> None:
    """`enqueue_many`, `app.enqueue_many` and the asynchronous twins."""
    import asyncio  # noqa: PLC0415

    first = shop.work.enqueue("a")
    using = shop.work.using(depends_on=first)
    jobs = using.enqueue_many([("b",), ("b",)])
    jobs += shop.app.enqueue_many([using.call("b"), shop.work.call("free")])

    async def enqueue() -> list[Job[str]]:
        return [await using.aenqueue("b"), *await using.aenqueue_many([("b",)])]

    jobs += asyncio.run(enqueue())
    shop.burst()
    assert [job.status for job in jobs] == ["done"] * 6
    assert shop.ran.index("a") < shop.ran.index("b")


def test_a_job_holds_its_unique_key_while_it_waits(shop: Shop) -> None:
    """And is due at its own time, if that is later."""
    first = shop.work.enqueue("a")
    job = shop.after(first, unique="k")
    later = shop.after(first, "late", after=600)
    shop.burst()
    assert job.status == "done"
    assert later.status == "scheduled"
    assert later.explain().reason == "scheduled"
    assert shop.ran == ["a", "b"]


def test_a_job_is_stored_in_a_transaction_with_what_it_waits_for(shop: Shop) -> None:
    """Or neither is stored."""
    if not shop.app.store.transactional or not hasattr(shop.app.store, "transaction"):
        pytest.skip("the store has no transactions")
    with pytest.raises(NotFound), shop.app.transaction() as tx:
        shop.after([shop.work.using(tx=tx).enqueue("a"), shop.after("0" * 32, tx=tx)], tx=tx)
    with shop.app.transaction() as tx:
        first = shop.work.using(tx=tx).enqueue("a")
        waiting = shop.after(first, tx=tx)
    shop.burst()
    waiting.retry()  # instead of its next check
    shop.burst()
    assert waiting.status == "done"
    assert shop.ran == ["a", "b"]


# Unique workflows


def test_a_workflow_holds_its_key_until_its_last_step_has_ended(shop: Shop) -> None:
    """Not until its first; then the next one starts at once."""
    app = shop.app
    part = pipeline(shop.work.step("a"), wait_signal("go"), shop.work.step("b").alone())
    flow = app.start(part, unique="import")
    with pytest.raises(Duplicate, match=f"The workflow {flow.id} has the unique key") as raised:
        app.start(part, unique="import")
    assert raised.value.job_id == flow.id
    shop.burst()
    assert shop.ran == ["a"]
    assert app.start(part, unique=Unique("import", mode="existing")) == flow
    assert app.start(part, unique="other") != flow
    flow.signal("go")
    shop.burst()
    assert flow.result(timeout=0) == "b"
    assert flow.progress.done == flow.progress.total == 3
    assert flow.status == "done"
    again = app.start(shop.work.step("z"), unique="import")
    assert again != flow
    shop.burst()
    assert again.status == "done"
    assert len([name for _, name in app.flows()]) == 3


def test_a_workflow_that_fails_holds_its_key_while_it_can_be_retried(shop: Shop) -> None:
    """A cancelled one does not, nor one whose failure is handled."""
    app = shop.app
    shop.broken.add("a")
    part = group(shop.work.step("a"), shop.work.step("b"))
    flow = app.start(part, unique="k")
    shop.burst()
    assert flow.status == "failed"
    with pytest.raises(Duplicate):
        app.start(part, unique="k")
    shop.broken.clear()
    flow.retry()
    shop.burst()
    assert flow.status == "done"
    shop.broken.add("a")
    handled = app.start(group(shop.work.step("a"), failures="skip"), unique="k")
    shop.burst()
    assert handled.status == "done"
    waiting = app.start(pipeline(wait_signal("never"), shop.work.step()), unique="k")
    shop.burst()
    waiting.cancel()
    assert app.start(shop.work.step("c"), unique="k") != waiting
    shop.burst()
    assert waiting.status == "cancelled"


def test_two_starts_at_once_are_one_workflow(shop: Shop) -> None:
    """Both have a handle on it; what the other stored is deleted."""
    unique = Unique("one", mode="existing")
    starting = threading.Barrier(4)

    def start(number: int) -> str:
        starting.wait()
        return shop.app.start(
            pipeline(shop.work.step(f"a{number}"), shop.work.step("b").alone()), unique=unique
        ).id

    with ThreadPoolExecutor(4) as pool:
        flows = set(pool.map(start, range(4)))
    assert len(flows) == 1
    shop.burst()
    assert len(shop.ran) == 2
    assert [flow.id for flow, _ in shop.app.flows()] == [*flows]
    assert shop.app.admin.list("").jobs == []


def test_a_key_is_held_within_a_period(shop: Shop) -> None:
    """Also after the end of the workflow."""
    unique = Unique("daily", mode="existing", within=86_400)
    flow = shop.app.start(shop.work.step("a"), unique=unique)
    shop.burst()
    assert flow.status == "done"
    assert shop.app.start(shop.work.step("a"), unique=unique) == flow


@pytest.mark.parametrize("mode", ["replace", "earliest", "last"])
def test_other_modes_are_refused(shop: Shop, mode: Mode) -> None:
    """With the reason; so is a key that names arguments."""
    with pytest.raises(BadInput, match="some of its steps may have run"):
        shop.app.start(shop.work.step("a"), unique=Unique("k", mode=mode))
    with pytest.raises(BadInput, match="does not take"):
        shop.app.start(shop.work.step("a"), unique="import:{name}")


def test_a_durable_function_holds_its_key_while_it_waits(shop: Shop) -> None:
    """It is one job, also while it is suspended."""
    using = shop.run.using(unique="k")
    job = using.enqueue("a")
    shop.burst()
    assert job.explain().reason == "signal"
    with pytest.raises(Duplicate):
        using.enqueue("a")
    job.signal("go")
    shop.burst()
    assert job.result(timeout=0) == "a"
    using.enqueue("b")
