"""Needs of jobs: labels and resources that their worker must have."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dueline import BadInput, Dueline, SchemaMismatch
from dueline.admin.move import Mover
from dueline.core import features
from dueline.core.clock import SystemClock
from dueline.web import api, dashboard
from tests.harness.http_api import Program
from tests.harness.web import Visitor

EU_GPU: dict[str, int | str] = {"region": "eu", "gpu": 1}


@pytest.fixture
def app() -> Iterator[Dueline]:
    made = Dueline("memory://")
    made.task(name="echo")(echo)
    made.task(name="train", needs=EU_GPU)(echo)
    yield made
    made.close()


def echo(value: object = None) -> object:
    """Return what is given."""
    return value


def run(app: Dueline, **has: int | str) -> None:
    """Run a worker that has something until nothing is due for it."""
    app.run_worker(burst=True, has=has)


def test_only_a_worker_that_has_all_runs_a_job(app: Dueline) -> None:
    job = app.task_named("train").enqueue("a")
    plain = app.task_named("echo").enqueue("b")
    run(app)
    assert (job.status, plain.status) == ("ready", "done")
    run(app, gpu=1)
    run(app, region="eu", gpu=0)
    run(app, region="us", gpu=4)
    assert job.status == "ready"
    run(app, region="eu", gpu=4, zone="a")
    assert job.result(timeout=0) == "a"


def test_a_call_has_its_own_needs(app: Dueline) -> None:
    train = app.task_named("train")
    job = train.using(needs={"memory": "2 GiB"}).using(priority=1).enqueue("a")
    assert job.needs == {"memory": 2 * 1024**3}
    assert train.enqueue().needs == EU_GPU
    job.change(tags=["night"])
    job.change(priority=3)
    assert job.needs == {"memory": 2 * 1024**3}
    run(app, memory="1.5 GiB")
    assert job.status == "ready"
    run(app, memory="3 GB")
    assert job.status == "done"
    assert not job.needs


def test_limits_and_needs_are_kept_side_by_side(app: Dueline) -> None:
    app.semaphore("host", capacity=1)
    job = app.task_named("train").using(limits=["host"]).enqueue("a")
    assert (app.admin.get(job.id).summary.limits, job.needs) == (("host",), EU_GPU)
    run(app, gpu=1)
    assert job.status == "ready"
    run(app, **EU_GPU)
    assert job.status == "done"


def test_a_job_that_was_enqueued_without_the_needs_of_its_task_gets_them(app: Dueline) -> None:
    app.semaphore("host", capacity=1)
    app.task(name="both", needs={"gpu": 1}, limits=["host"])(echo)
    jobs = [app.unchecked(name).enqueue("a") for name in ("train", "both")]
    run(app)
    assert [job.status for job in jobs] == ["ready", "ready"]
    assert [job.needs for job in jobs] == [EU_GPU, {"gpu": 1}]
    assert app.admin.get(jobs[1].id).summary.limits == ("host",)
    run(app, **EU_GPU)
    assert [job.status for job in jobs] == ["done", "done"]


def test_retries_schedules_and_workflows_keep_needs(app: Dueline) -> None:
    tries: list[int] = []

    def fail() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError

    failing = app.task(name="fail", needs=EU_GPU)(fail)
    job = failing.enqueue()
    flow = app.start(app.task_named("train").step("a"))
    app.schedules.set("s", app.task_named("train"), ["b"], every=3600)
    scheduled = app.schedules.trigger("s")
    run(app)
    assert (job.status, scheduled.status, flow.status) == ("ready", "ready", "running")
    run(app, **EU_GPU)
    assert (job.status, scheduled.status, flow.status) == ("retrying", "done", "done")
    job.retry()
    run(app)
    assert job.status == "ready"
    run(app, **EU_GPU)
    assert job.status == "done"


def test_a_worker_is_not_filled_over_what_it_has(app: Dueline) -> None:
    lock, running, peaks = threading.Lock(), [0, 0], [0, 0]
    both = threading.Barrier(2, timeout=20)

    def work(gpu: int) -> None:
        with lock:
            running[0] += gpu
            running[1] += 1
            peaks[:] = map(max, peaks, running)
        if gpu == 2:
            both.wait()
        with lock:
            running[0] -= gpu
            running[1] -= 1

    task = app.task(name="work")(work)
    jobs = [task.using(needs={"gpu": gpu}).enqueue(gpu) for gpu in (3, 2, 2, 1, 1, 3)]
    run(app, gpu=4)
    assert all(job.status == "done" for job in jobs)
    assert peaks[0] <= 4
    assert peaks[1] >= 2


def wait_for_workers(app: Dueline, count: int) -> None:
    """Wait for the first heartbeats of workers."""
    until = time.monotonic() + 20
    while len(app.admin.workers()) < count:
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize(
    "needs",
    [
        "gpu", 7, ["gpu"], {}, {"": 1}, {"GPU": 1}, {"gpu": 0}, {"gpu": -1}, {"gpu": 1.5},
        {"gpu": True}, {"gpu": None}, {"a b": 1}, {"region": "e,u"}, {"region": ""},
        {"region": "x" * 64}, {"memory": "2 XiB"}, {"gpu": 2**60}, {7: 1},
        {f"n{number}": 1 for number in range(9)},
    ],
)  # fmt: skip
def test_other_needs_are_refused(app: Dueline, needs: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadInput, match=r"need|valid name"):
        app.task_named("echo").using(needs=needs)
    with pytest.raises(BadInput, match=r"need|valid name"):
        app.task(name="other", needs=needs)(echo)


@pytest.mark.parametrize(
    "has", ["gpu", ["gpu"], {"gpu": -1}, {"gpu": 0.5}, {"G": 1}, {f"n{n}": 1 for n in range(33)}]
)
def test_what_a_worker_cannot_have_is_refused(app: Dueline, has: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadInput, match=r"has|valid name"):
        app.worker(has=has)
    with pytest.raises(BadInput, match=r"has|valid name"):
        app.run_worker(burst=True, has=has)


def test_explain_names_what_no_worker_has(app: Dueline) -> None:
    job = app.task_named("train").enqueue("a")
    assert job.explain().reason == "no worker"
    with app.worker():
        wait_for_workers(app, 1)
        said = job.explain()
        assert said.reason == "needs"
        assert "no live worker has gpu=1, region=eu" in said.sentence
        assert "--has gpu=1 --has region=eu" in said.conditions[0].command
        checks = app.admin.health().checks
        assert any("no live worker has gpu=1, region=eu" in check.finding for check in checks)
    with app.worker(has={"gpu": 1}), app.worker(has={"region": "eu"}):
        wait_for_workers(app, 2)
        assert "no live worker has all of gpu=1, region=eu at once" in job.explain().sentence


def test_resources_in_use_are_explained_and_shown(app: Dueline) -> None:
    started, ends = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        ends.wait(20)

    app.task(name="work", needs={"gpu": 2})(work).enqueue()
    with app.worker(has={"gpu": 3, "region": "eu"}):
        assert started.wait(20)
        job = app.task_named("train").using(needs={"gpu": 2}).enqueue()
        other = app.task_named("train").enqueue()
        assert other.result(timeout=20) is None  # it fits, and is not blocked
        while not (worker := app.admin.workers()[0]).used:
            ends.wait(0.05)
        assert (worker.free["gpu"], worker.has) in [
            (1, {"gpu": 3, "region": "eu"}),
            (0, {"gpu": 3, "region": "eu"}),
        ]
        said = job.explain()
        assert said.reason == "resources"
        assert "of 3 gpu" in said.sentence
        page = Visitor(dashboard(app)).send("GET", "/workers")
        assert "gpu=3" in page.text
        ends.set()
        job.result(timeout=20)


def test_older_processes_refuse_a_store_with_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Dueline(f"sqlite:///{tmp_path}/jobs.db")
    app.task(name="echo")(echo)
    app.task_named("echo").enqueue("a")
    older = Dueline(app.url)
    older.task(name="echo")(echo)
    older.run_worker(burst=True)  # which a job without needs does not disturb
    app.task_named("echo").using(needs={"gpu": 1}).enqueue("b")
    monkeypatch.setattr(features, "KNOWN", features.KNOWN - {features.NEEDS})
    oldest = Dueline(app.url)
    oldest.task(name="echo")(echo)
    with pytest.raises(SchemaMismatch, match="needs of workers"):
        oldest.run_worker(burst=True)
    for each in (app, older, oldest):
        each.close()


def test_the_dashboard_and_http_show_needs(app: Dueline) -> None:
    job = app.task_named("train").enqueue("a")
    page = Visitor(dashboard(app)).send("GET", f"/jobs/{job.id}")
    assert "<dt>Needs</dt><dd>gpu=1, region=eu</dd>" in page.text
    program = Program(api(app, role="admin"))
    call = {"task": "echo", "args": [1], "needs": {"gpu": 2}}
    made = program.call("POST", "/jobs", call, status=201)
    assert program.call("GET", f"/jobs/{made['id']}")["needs"] == {"gpu": 2}


def test_jobs_with_needs_move_to_another_store(app: Dueline) -> None:
    job = app.task_named("train").enqueue("a")
    other = Dueline("memory://")
    other.task(name="train", needs=EU_GPU)(echo)
    try:
        Mover(
            app.queues, other.queues, ("old", "new"),
            clock=SystemClock(), report=lambda *_: None, grace_us=0,
        ).run()  # fmt: skip
        assert other.job(job.id).needs == EU_GPU
        assert other.queues.engine.catalog.features.has("needs of workers")
        run(other)
        assert other.job(job.id).status == "ready"
        run(other, **EU_GPU)
        assert other.job(job.id).status == "done"
    finally:
        other.close()
