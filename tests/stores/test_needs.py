"""Needs of jobs on each kind of store (O14, O15)."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline import Context, Dueline
from dueline.core.features import NEEDS
from tests.harness.addresses import IN_MEMORY, LONG_ON_CASSANDRA, address

EU_GPU: dict[str, int | str] = {"region": "eu", "gpu": 1}
WAIT_S = 60.0


@pytest.fixture(params=[*IN_MEMORY, *LONG_ON_CASSANDRA])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Dueline]:
    """Make an application on an empty store."""
    with address(request.param, tmp_path) as url:
        made = Dueline(url)
        made.queue("default", shards=2)
        yield made
        made.close()


def test_only_a_worker_that_has_the_needs_claims_a_job(app: Dueline) -> None:
    """No claim is given back: the fences say so."""
    app.task(name="train", needs=EU_GPU)(len)
    app.task(name="echo")(len)
    jobs = [app.task_named("train").enqueue("a") for _ in range(4)]
    plain = [app.task_named("echo").enqueue("a") for _ in range(4)]
    assert app.queues.engine.catalog.features.has(NEEDS)
    unfit: list[dict[str, int | str]] = [{}, {"gpu": 4}, {"gpu": 4, "region": "us"}]
    for has in unfit:
        app.run_worker(burst=True, has=has)
    assert {job.status for job in plain} == {"done"}
    rows = [app.queues.find(bytes.fromhex(job.id)).row for job in jobs]  # type: ignore[arg-type]
    assert {row and row.fence for row in rows} == {0}
    app.run_worker(burst=True, has={"gpu": 1, "region": "eu"})
    assert [job.result(timeout=0) for job in jobs] == [1] * 4


def test_no_worker_runs_more_than_it_has(app: Dueline) -> None:
    """Two workers and a scarce resource: each uses what it has at most."""
    lock, running, peaks = threading.Lock(), Counter[str](), Counter[str]()

    @app.task(name="work", needs={"gpu": 1})
    def work(ctx: Context, gpu: int) -> None:
        row = app.queues.engine.store.find([ctx.job_id])[0]
        assert row is not None
        with lock:
            running[row.worker] += gpu
            peaks[row.worker] = max(peaks[row.worker], running[row.worker])
        time.sleep(0.01)
        with lock:
            running[row.worker] -= gpu

    jobs = [work.using(needs={"gpu": n % 3 + 1}).enqueue(n % 3 + 1) for n in range(24)]
    with app.worker(has={"gpu": 3}), app.worker(has={"gpu": 4}):
        for job in jobs:
            job.result(timeout=WAIT_S)
    assert 0 < max(peaks.values()) <= 4
    assert min(peaks.values()) <= 3
