"""A small Spark, and what benchmarks write with it."""

import os
from pathlib import Path
from typing import Any

from dueline import Dueline
from dueline.spark import session


def two_cores(name: str) -> Any:  # noqa: ANN401
    """Start Spark on two cores; its Python workers find what this process does."""
    root = Path(__file__).parents[1]
    paths = (str(root / "src"), str(root), os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return session(name, master="local[2]", conf={"spark.log.level": "ERROR"})


def orders(spark: Any, rows: int, *, parts: int) -> Any:  # noqa: ANN401
    """Make a table of jobs, each of a name and a number."""
    numbers = spark.range(rows, numPartitions=parts)
    return numbers.selectExpr("concat('n', id) AS job_id", "concat('[', id, ']') AS payload")


def queue_at(path: Path, *, shards: int = 1) -> str:
    """Make a store with a queue; tell its address."""
    app = Dueline(f"sqlite:///{path}?synchronous=NORMAL")
    app.queues.engine.catalog.configure("mail", shards=shards)
    app.close()
    return app.url
