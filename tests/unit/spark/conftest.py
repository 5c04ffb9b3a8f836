"""One Spark for all tests, and a store that real workers have filled."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dueline import Dueline, Retry
from tests.harness.spark.environment import TIMEOUT_S, need_spark
from tests.harness.spark.readers import JOBS, WAITING

BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A plan that runs once, on a few rows, does not repay the second compiler."""

PLAIN_PLANS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Nor does it repay generated code. Pages of the docs run with the settings of users."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all that is here."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session", autouse=True)
def _needed() -> None:
    need_spark()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start a small Spark."""
    from dueline.spark import session

    root = Path(__file__).parents[3]
    paths = [str(root / "src"), str(root), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))  # workers read it
    warehouse = tmp_path_factory.mktemp("warehouse")
    started = session(
        "tests",
        master="local[2, 3]",  # a task may fail twice
        conf={
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(warehouse),
            "spark.log.level": "ERROR",
            "spark.driver.extraJavaOptions": BRIEF,
            **PLAIN_PLANS,
        },
    )
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    yield started
    started.stop()


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
