"""The data source `dueline`."""

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from dueline.core.errors import DuelineError
from dueline.spark.reading.batch_reader import BatchReader
from dueline.spark.reading.frame import table_reader, table_schema
from dueline.spark.reading.stream_reader import RefusedReader, StreamReader
from dueline.spark.runtime.options import FOLLOWING, WRITING, Options
from dueline.spark.runtime.refusals import in_one_sentence, is_in_spark
from dueline.spark.writing.sink import BatchSink, StreamSink


@in_one_sentence
class DuelineSource(DataSource):
    """Jobs, their history, and streams, as tables."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options.items())

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "dueline"

    def schema(self) -> StructType:
        """Return the columns of the requested table."""
        return table_schema(self._given)

    def reader(self, schema: StructType) -> BatchReader:
        """Read a table once."""
        return table_reader(self._given, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's)
        """Follow a stream."""
        try:
            return StreamReader(Options(self._given, FOLLOWING), schema)
        except DuelineError as error:
            if not is_in_spark():
                raise
            return RefusedReader(error)

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
