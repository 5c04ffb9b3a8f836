"""Who changed a job or a setting, on each kind of store (V13)."""

import time

import pytest

from dueline import Context, Dueline, Job, Retry
from dueline.api.job_handle import parse_id
from dueline.core.actor import Actor
from dueline.core.attempt import Attempt
from dueline.jobs.bulk import cancel_all, delete_dead, retry_all
from dueline.jobs.history import attempts
from dueline.jobs.queue import Queues

ANN = Actor("ann", "dashboard")


def app_on(url: str) -> Dueline:
    app = Dueline(url)

    @app.task(name="fail", retry=Retry(attempts=1))
    def fail(number: int) -> None:
        raise ValueError(number)

    @app.task(name="stop")
    def stop(ctx: Context) -> None:
        ann(app).cancel(parse_id(ctx.job_id.hex()))
        for _ in range(600):
            time.sleep(0.05)
            ctx.check_cancelled()

    return app


def ann(app: Dueline) -> Queues:
    """Return the queues as ann changes them on the dashboard."""
    return app.queues.by(ANN)


def events(app: Dueline, job: Job[object]) -> list[str]:
    """Return the events of a job that no worker has recorded."""
    shards = app.engine.catalog.settings("default").shards_read
    history = sorted(attempts(app.engine.store, "default", shards, everything=True), key=when)
    mine = (event for event in history if event.job == job.id and not event.worker)
    return [f"{event.outcome}: {event.error}" for event in mine]


def when(event: Attempt) -> int:
    return event.ended_us


def test_the_history_of_a_job_says_who_changed_it(url: str) -> None:
    # V13, rule O3
    app = app_on(url)
    job = app.task_named("fail").using(after=60).enqueue(1)
    ann(app).reschedule(parse_id(job.id), app.engine.time.latest_us() + 10**8)
    ann(app).change(parse_id(job.id), tags=["big"])
    ann(app).retry(parse_id(job.id))
    app.run_worker(burst=True)
    assert job.status == "dead"
    ann(app).retry(parse_id(job.id))
    ann(app).cancel(parse_id(job.id))
    assert events(app, job) == [
        "changed: rescheduled by ann (dashboard)",
        "changed: changed by ann (dashboard)",
        "changed: retried by ann (dashboard)",
        "changed: retried by ann (dashboard)",
        "cancelled: cancelled by ann (dashboard)",
    ]
    app.close()


def test_all_jobs_of_a_change_say_who_made_it(url: str) -> None:
    # V13, rule O3
    app = app_on(url)
    engine = app.engine
    kept = [app.task_named("fail").enqueue(number) for number in range(3)]
    gone = [app.task_named("fail").using(after=60).enqueue(number) for number in range(3)]
    keyed = app.task_named("fail").using(unique="one").enqueue(9)
    app.run_worker(burst=True)
    find = engine.store.find
    dead = [row for row in find([parse_id(job.id) for job in [*kept, keyed]]) if row is not None]
    waiting = [row for row in find([parse_id(job.id) for job in gone]) if row is not None]
    assert [page.done for page in retry_all(ann(app), dead[2:])] == [2]
    assert [page.done for page in cancel_all(ann(app), waiting)] == [3]
    assert [page.done for page in delete_dead(ann(app), dead[:2])] == [2]
    for job in gone:
        assert events(app, job) == ["cancelled: cancelled by ann (dashboard)"]
    for job in kept[:2]:
        assert events(app, job) == ["noted: deleted by ann (dashboard)"]
    for job in (kept[2], keyed):
        assert events(app, job) == ["changed: retried by ann (dashboard)"]
    app.close()


def test_a_running_job_says_who_asked_it_to_stop(url: str) -> None:
    # V13, rule O3
    app = app_on(url)
    job = app.task_named("stop").enqueue()
    app.run_worker(burst=True)
    assert job.status == "cancelled"
    assert events(app, job) == ["noted: asked to stop by ann (dashboard)"]
    app.close()


def test_code_is_named_by_the_function_that_calls(url: str) -> None:
    # V13, rule O3
    app = app_on(url)
    job = app.task_named("fail").using(after=60).enqueue(1)
    job.pause()
    job.resume()
    job.cancel()
    here = f"{__name__}.test_code_is_named_by_the_function_that_calls"
    assert events(app, job) == [
        f"noted: paused by {here} (code)",
        f"noted: resumed by {here} (code)",
        f"cancelled: cancelled by {here} (code)",
    ]
    app.pause("default", tenant="acme")
    (action,) = app.admin.actions()
    assert (action.who, action.door) == (here, "code")
    assert (action.what, action.target) == ("pause queue", "default, tenants=acme")
    app.close()


@pytest.mark.parametrize("history", ["attempts", "off"])
def test_nothing_is_added_for_plain_jobs_and_without_a_history(url: str, history: str) -> None:
    # V13, rule O3
    app = app_on(url)
    app.queue("default", history=history)  # type: ignore[arg-type]  # one of them
    job = app.task_named("fail").enqueue(1)
    app.run_worker(burst=True)
    assert events(app, job) == []
    ann(app).retry(parse_id(job.id))
    ann(app).cancel(parse_id(job.id))
    assert bool(events(app, job)) == (history != "off")
    app.close()
