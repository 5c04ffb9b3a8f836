"""A project of Spark Declarative Pipelines on a store."""

import json
from pathlib import Path
from string import Template
from typing import Final

from dueline.api.config import STORE_VARIABLE
from dueline.api.connect import mask, shared_url
from dueline.core.errors import ConfigError, Conflict

_FILES: Final = {
    "spark-pipeline.yml": """\
# Run it in this folder, again and again; the option has Spark keep its catalog here:
#   spark-pipelines run --conf spark.sql.catalogImplementation=hive
name: $name
storage: $storage
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.sql.session.timeZone: UTC
""",
    "transformations/history.py": '''\
"""The history of the queues, followed."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
STORE = os.environ.get("$variable", $store)


@dp.table
def attempts() -> DataFrame:
    """Every attempt that ended, and with history="all" every job that was enqueued."""
    source = spark.readStream.format("dueline").option("store", STORE)
    return source.option("table", "attempts").load()
''',
    "transformations/minutes.sql": """\
CREATE MATERIALIZED VIEW minutes AS
SELECT
  queue,
  date_trunc('minute', ended) AS minute,
  count(*) AS attempts,
  count_if(outcome = 'done') AS done,
  count_if(outcome = 'retried') AS retried,
  count_if(outcome = 'dead') AS dead,
  max(unix_micros(started) - unix_micros(due)) / 1000 AS start_latency_ms_max
FROM attempts
WHERE worker IS NOT NULL
GROUP BY ALL
""",
}


def make_project(folder: Path, store: str) -> list[Path]:
    """Write a project that `spark-pipelines run` runs; return its files.

    A URL with a password is not written: the project then reads it from DUELINE_STORE.

    Args:
        folder: Where; it must not hold a project.
        store: URL of the store.

    Raises:
        Conflict: The folder holds a project already.
        ConfigError: The folder cannot be written.
    """
    root = folder.absolute()
    url = shared_url(store)
    words = {
        "name": json.dumps(root.name),
        "storage": (root / "pipeline-storage").as_uri(),
        "store": json.dumps(url if mask(url) == url else ""),
        "variable": STORE_VARIABLE,
    }
    made = [root / name for name in _FILES]
    if any(path.exists() for path in made):
        raise Conflict(f"{folder} holds a project already.", hint="Use another folder.")
    try:
        for path, text in zip(made, _FILES.values(), strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(Template(text).substitute(words), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}.") from error
    return made
