"""Tables of a store as data frames."""

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from dueline.spark.reading.batch_reader import BatchReader, PruningReader
from dueline.spark.reading.schemas import COLUMNS, struct_of
from dueline.spark.runtime.options import (
    FOLLOWING,
    READING,
    TABLES,
    Options,
    cores_of,
    option_texts,
)


def table_schema(given: Mapping[str, str]) -> StructType:
    """Return the columns of the table that options name.

    Raises:
        BadInput: An option is not known, or there is no such table.
    """
    return struct_of(COLUMNS[Options(given, FOLLOWING).one_of("table", TABLES, "events")])


def table_reader(given: Mapping[str, str], schema: StructType) -> BatchReader:
    """Return the reader of the table that options name.

    Raises:
        BadInput: An option is not known or wrong, or the schema does not fit the table.
    """
    options = Options(given, READING)
    if options.flag("pushdown", default=False):
        return PruningReader(options, schema)
    return BatchReader(options, schema)


def read(spark: SparkSession, store: str, table: str = "events", **options: object) -> DataFrame:
    """Read a table of a store.

    The first query plans what is read, and later queries of the same frame read the same. To read
    newer rows, call this again.

    Args:
        spark: The session.
        store: URL of the store.
        table: "events", "attempts", "jobs", "stream", "results", "shards" or "workers".
        options: Options of `spark.read.format("dueline")`.

    Raises:
        BadInput: An option is wrong.
        ConfigError: There is no such store.
        NotFound: There is no such queue or stream.
    """
    texts = option_texts({"store": store, "table": table} | options)
    table_reader(texts, table_schema(texts)).check()  # here: a query would add its traceback
    if cores := cores_of(spark):
        texts = option_texts({"minPartitions": cores}) | texts
    return spark.read.format("dueline").options(**texts).load()
