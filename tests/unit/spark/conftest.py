"""One Spark for all tests, and a store that real workers have filled."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dueline import Dueline, Retry
from tests.harness.spark.environment import (
    BRIEF,
    BRIEF_VARIABLES,
    PLAIN_PLANS,
    TIMEOUT_S,
    need_spark,
)
from tests.harness.spark.readers import JOBS, WAITING
from tests.harness.spark.tables import app_with_a_past
from tests.unit.spark.standalone import Cluster, started


@pytest.hookimpl(tryfirst=True)  # before tests of this mark are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all that is here, and what shares a Spark."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))
            if {"spark", "machines"} & set(getattr(item, "fixturenames", ())):
                item.add_marker(pytest.mark.spark_session)


@pytest.fixture(scope="session", autouse=True)
def _needed() -> None:
    need_spark()
    os.environ.update(dict.fromkeys(BRIEF_VARIABLES, BRIEF))


@pytest.fixture
def app(tmp_path: Path) -> Dueline:
    """Make a store with a past."""
    return app_with_a_past(tmp_path)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start a small Spark."""
    from dueline.spark import session

    root = Path(__file__).parents[3]
    paths = [str(root / "src"), str(root), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))  # workers read it
    warehouse = tmp_path_factory.mktemp("warehouse")
    made = session(
        "tests",
        master="local[2, 3]",  # a task may fail twice
        conf={
            "spark.sql.warehouse.dir": str(warehouse),
            "spark.log.level": "ERROR",
            **PLAIN_PLANS,
        },
    )
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def _callbacks(request: pytest.FixtureRequest) -> None:
    """Let each test start a server of its own for the calls of `foreachBatch`.

    After some queries Java's side may call a port at which nobody listens any more; PySpark only
    tells it the port when it starts a server.
    """
    if "spark" in request.fixturenames:
        gateway = request.getfixturevalue("spark").sparkContext._gateway
        if gateway.__dict__.get("_callback_server") is not None:
            gateway._callback_server = None


@pytest.fixture(scope="session")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start a standalone cluster."""
    with started(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Dueline:
    """Fill a store: jobs that were run, failed, and wait, in two queues of several shards."""
    app = Dueline(f"sqlite:///{tmp_path_factory.mktemp('shop') / 'jobs.db'}?synchronous=NORMAL")

    @app.task(name="count", queue="mail", retry=Retry(attempts=2, base=0.001, cap=0.001))
    def count(number: int) -> None:
        if number % 50 == 0:
            raise ValueError("every fiftieth")

    app.queue("mail", shards=4)
    app.queue("bills", shards=2)
    with app.transaction() as tx:
        count.using(tx=tx).enqueue(1)
    count.enqueue_many([(number,) for number in range(2, JOBS)])
    count.using(queue="bills", tenant="acme", priority=3).enqueue_many(
        [(number,) for number in range(200)]
    )
    app.run_worker(burst=True)
    count.using(after=3600).enqueue_many([(number,) for number in range(WAITING)])
    count.using(queue="bills", tenant="zeta").enqueue(7)
    return app
