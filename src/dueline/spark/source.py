"""The data source `dueline`."""

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from dueline.spark.reading.batch_reader import BatchReader, PruningReader
from dueline.spark.reading.schemas import COLUMNS, struct_of
from dueline.spark.reading.stream_reader import StreamReader
from dueline.spark.runtime.options import FOLLOWING, READING, TABLES, WRITING, Options
from dueline.spark.writing.sink import BatchSink, StreamSink


class DuelineSource(DataSource):
    """Jobs, their history, and streams, as tables."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Take the options; whether they are known is seen where they are used."""
        super().__init__(options)
        self._given = dict(options.items())

    @classmethod
    def name(cls) -> str:
        """Name the format."""
        return "dueline"

    def schema(self) -> StructType:
        """Tell the columns of the table that is asked for."""
        return struct_of(COLUMNS[Options(self._given, FOLLOWING).one_of("table", TABLES, "events")])

    def reader(self, schema: StructType) -> BatchReader:
        """Read a table once."""
        options = Options(self._given, READING)
        if options.flag("pushdown", default=False):
            return PruningReader(options, schema)
        return BatchReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's)
        """Follow a stream."""
        return StreamReader(Options(self._given, FOLLOWING), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """Enqueue a table."""
        return BatchSink(Options(self._given, WRITING), schema, overwrite)

    def streamWriter(  # noqa: N802  (Spark's)
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> DataSourceStreamWriter:
        """Enqueue a stream."""
        return StreamSink(Options(self._given, WRITING), schema, overwrite)
