"""Jobs enqueued from a data frame."""

from contextlib import closing
from uuid import uuid4

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from dueline.api.connect import open_existing
from dueline.spark.runtime.options import WRITING, Options, option_texts
from dueline.spark.runtime.refusals import refusal_in
from dueline.spark.writing.enqueue import Written
from dueline.spark.writing.sink import BatchSink, written


def enqueue(frame: DataFrame, store: str, **options: object) -> Written:
    """Enqueue each row of a table as a job.

    Args:
        frame: The rows.
        store: URL of the store.
        options: Options of `frame.write.format("dueline")`.

    Returns:
        The number of rows, of new jobs, and of rows that were left out.

    Raises:
        BadInput: The table does not fit the task, or an option is wrong.
        ConfigError: There is no such store.
        Conflict: Another write, or another queue, has unfinished jobs of these ids; see
            `onConflict`.
    """
    write = str(options.get("writeId") or uuid4().hex)
    texts = option_texts({"store": store} | options | {"writeId": write})
    BatchSink(Options(texts, WRITING), frame.schema, overwrite=False)  # refuses what does not fit
    try:
        frame.write.format("dueline").mode("append").options(**texts).save()
    except PySparkException as error:
        refusal = refusal_in(error)
        if refusal is None:
            raise
        raise refusal from None
    with closing(open_existing(store)) as opened:
        return written(opened, write)
