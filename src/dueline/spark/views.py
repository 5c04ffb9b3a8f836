"""Temporary views of all tables."""

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from dueline.core.errors import BadInput
from dueline.spark.reading.frame import read
from dueline.spark.runtime.options import TABLES


def register(
    spark: SparkSession,
    *,
    lake: str | Path | None = None,
    store: str | None = None,
    prefix: str = "",
    storage_options: Mapping[str, str] | None = None,
) -> list[str]:
    """Make a temporary view of each table of a lake and of a store, for `spark.sql`.

    The view `steps` has a row for each record of a durable function whose history is `all`.

    A view shows the rows as they were when it was made: call it again for newer rows.

    Args:
        spark: The session.
        lake: Folder or address of the tables of `dueline pipeline run`.
        store: URL of a store; its tables are all of `read` but `stream`.
        prefix: What the names of the views begin with.
        storage_options: Options of the lake's object store.

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
        frames |= _lake(spark, str(lake), storage_options)
    history = frames.get("bronze", frames.get("attempts"))
    if history is not None:
        frames["steps"] = _steps(spark, history)
    for name, frame in frames.items():
        frame.createOrReplaceTempView(f"{prefix}{name}")
    return sorted(f"{prefix}{name}" for name in frames)


def _steps(spark: SparkSession, history: DataFrame) -> DataFrame:
    """Return the records of durable functions in a history."""
    from dueline.spark.pipeline.queries import Spark, text_of  # noqa: PLC0415  (see below)

    return Spark(spark).run(text_of("steps"), {"rows": history}).frame


def _lake(
    spark: SparkSession, address: str, options: Mapping[str, str] | None
) -> dict[str, DataFrame]:
    from dueline.spark.pipeline.asking import QUESTIONS  # noqa: PLC0415
    from dueline.spark.pipeline.delta import place_of  # noqa: PLC0415  (executors may lack deltalake)
    from dueline.spark.pipeline.queries import Spark, text_of  # noqa: PLC0415
    from dueline.spark.pipeline.tables import DESIGNS, open_table  # noqa: PLC0415

    place = place_of(address, options)
    tables = {name: open_table(place, name) for name in DESIGNS}
    tables["bronze"].delta()  # a lake has it
    queries = Spark(spark)
    frames = {name: queries.frame(table.view()) for name, table in tables.items() if table.exists()}
    if "silver" in frames:
        asked = {"asked": frames["silver"]}
        for question in QUESTIONS.values():
            frames[question.text] = queries.run(text_of(question.text), asked).frame
    return frames
