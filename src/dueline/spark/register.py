"""Temporary views of all tables."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from dueline.core.errors import BadInput
from dueline.spark.pipeline.table_store import BRONZE, GOLD, SILVER, WHOLE, Folder
from dueline.spark.reading.frame import read
from dueline.spark.runtime.options import TABLES

LAKE: tuple[str, ...] = (BRONZE, SILVER, *GOLD, *WHOLE)


def register(
    spark: SparkSession,
    *,
    lake: str | Path | None = None,
    store: str | None = None,
    prefix: str = "",
) -> list[str]:
    """Make a temporary view of each table of a lake and of a store, for `spark.sql`.

    A view shows the rows as they were when it was made: call it again for newer rows.

    Args:
        spark: The session.
        lake: Folder of the tables of `dueline pipeline run`.
        store: URL of a store; its tables are all of `read` but `stream`.
        prefix: What the names of the views begin with.

    Returns:
        The names of the views.

    Raises:
        BadInput: Neither a lake nor a store is named.
        ConfigError: There is no such store.
        NotFound: There are no tables in the lake.
    """
    if lake is None and store is None:
        raise BadInput("There is nothing to register.", hint="Name a lake, a store, or both.")
    frames: dict[str, DataFrame] = {}
    if store is not None:
        frames |= {name: read(spark, store, name) for name in TABLES if name != "stream"}
    if lake is not None:
        frames |= _lake(spark, Folder(Path(lake)))
    for name, frame in frames.items():
        frame.createOrReplaceTempView(f"{prefix}{name}")
    return sorted(f"{prefix}{name}" for name in frames)


def _lake(spark: SparkSession, folder: Folder) -> dict[str, DataFrame]:
    folder.need(SILVER)
    files = {name: [str(file) for file in folder.files(name)] for name in LAKE}
    return {name: spark.read.parquet(*some) for name, some in files.items() if some}
