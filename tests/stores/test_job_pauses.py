"""Pauses of single jobs, on each kind of store (C24)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline import Conflict, Dueline, DurableContext, NotFound, Retry, Unique, pipeline
from dueline.core.job import PAUSED_US, JobId
from tests.harness.addresses import IN_MEMORY, LONG_ON_CASSANDRA, address


@pytest.fixture(params=[*IN_MEMORY, *LONG_ON_CASSANDRA])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Dueline]:
    """Make an application on an empty store."""
    with address(request.param, tmp_path) as url:
        made = with_tasks(Dueline(url))
        yield made
        made.close()


def with_tasks(app: Dueline) -> Dueline:
    """Register the tasks."""
    app.task(name="work", retry=Retry.fixed(3600, attempts=2))(work)
    app.durable(name="wait")(wait)
    return app


def work(name: str = "") -> str:
    """Return the argument, or fail."""
    if name == "bad":
        raise ValueError
    return name


def wait(ctx: DurableContext) -> str:
    """Wait for a signal."""
    return str(ctx.wait_signal("go"))


def burst(app: Dueline) -> None:
    """Run what is due."""
    app.run_worker(burst=True)


def test_a_paused_job_never_runs_until_it_is_resumed(app: Dueline) -> None:
    task = app.task_named("work")
    job, other = task.enqueue("a"), task.enqueue("b")
    later, bad = task.using(after=3600).enqueue("c"), task.enqueue("bad")
    for paused in (job, later):
        paused.pause()
        paused.pause()  # once more changes nothing
    burst(app)
    assert [each.status for each in (job, other, later, bad)] == [
        "paused", "done", "paused", "retrying",
    ]  # fmt: skip
    bad.pause()
    counts = app.admin.queues()[0].counts
    assert (counts.paused, counts.ready, counts.living()) == (3, 0, 3)
    page = app.admin.list("state:paused", limit=2)
    rest = app.admin.list("state:paused", limit=2, after=page.next)
    assert {each.id for each in (*page.jobs, *rest.jobs)} == {job.id, later.id, bad.id}
    assert len(rest.jobs) == 1
    said = job.explain()
    assert said.reason == "paused"
    assert f"dueline jobs resume {job.id}" in str(said)
    for paused in (job, later, bad):
        paused.resume()
    assert [each.status for each in (job, later, bad)] == ["ready", "scheduled", "retrying"]
    burst(app)
    assert [each.status for each in (job, later, bad)] == ["done", "scheduled", "retrying"]


def test_only_waiting_jobs_are_paused_and_paused_ones_change_no_more(app: Dueline) -> None:
    task = app.task_named("work")
    done, job = task.enqueue("a"), task.enqueue("b")
    with pytest.raises(Conflict, match="is ready, not paused"):
        job.resume()
    job.pause()
    burst(app)
    with pytest.raises(Conflict, match="done and cannot be paused"):
        done.pause()
    for change in (job.retry, lambda: job.reschedule(after=0), lambda: job.change(priority=3)):
        with pytest.raises(Conflict, match="paused and cannot be") as raised:
            change()
        assert f"dueline jobs resume {job.id}" in (raised.value.hint or "")
    with pytest.raises(NotFound):
        app.job("0" * 32).pause()
    assert job.cancel()
    assert job.status == "cancelled"


def test_keys_quotas_and_expiry_stay_with_a_paused_job(app: Dueline) -> None:
    task = app.task_named("work")
    job = task.using(unique=Unique("k", mode="earliest"), after=60).enqueue("a")
    expiring = task.using(expires=0.2).enqueue("b")
    job.pause()
    expiring.pause()
    assert task.using(unique=Unique("k", mode="earliest")).enqueue("a").id == job.id
    assert task.using(unique=Unique("k", mode="existing")).enqueue("a").id == job.id
    burst(app)
    assert job.status == "paused"
    row = app.queues.find(JobId(bytes.fromhex(job.id))).row
    assert row is not None
    assert row.at_us > PAUSED_US
    app.clock.sleep(0.3)
    assert expiring.status == "paused"
    expiring.resume()
    burst(app)
    assert expiring.status == "expired"


def test_a_release_is_not_missed_by_a_paused_job(app: Dueline) -> None:
    task = app.task_named("work")
    first = task.using(after=3600).enqueue("a")
    waiting = task.using(depends_on=first).enqueue("b")
    function = app.task_named("wait").enqueue()
    burst(app)
    for job in (waiting, function):
        job.pause()
    first.retry()
    function.signal("go", "now")
    burst(app)
    assert (first.status, waiting.status, function.status) == ("done", "paused", "paused")
    for job in (waiting, function):
        job.resume()
    burst(app)
    assert (waiting.status, function.status) == ("done", "done")


def test_a_paused_step_goes_on_when_it_is_resumed(app: Dueline) -> None:
    task = app.task_named("work")
    flow = app.start(pipeline(task.step("c"), task.step()))
    (step,) = [job for job in app.admin.list("state:scheduled").jobs if job.task == "work"]
    app.job(step.id).pause()
    burst(app)
    assert (app.job(step.id).status, flow.status) == ("paused", "running")
    app.job(step.id).resume()
    burst(app)
    assert flow.status == "done"


def test_a_paused_function_that_began_can_be_cancelled(app: Dueline) -> None:
    function = app.task_named("wait").enqueue()
    burst(app)
    function.pause()
    function.cancel()
    burst(app)
    assert function.status == "cancelled"


def test_a_paused_job_blocks_its_order_key_and_goes_on_in_its_turn(app: Dueline) -> None:
    task = app.task_named("work").using(order_key="k")
    first, second, third = (task.enqueue(name) for name in "abc")
    second.pause()
    burst(app)
    assert [job.status for job in (first, second, third)] == ["done", "paused", "scheduled"]
    second.resume()
    assert second.status == "ready"  # its turn has come meanwhile
    burst(app)
    assert second.status == "done"
