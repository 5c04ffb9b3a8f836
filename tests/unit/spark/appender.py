"""A driver that appends a stream to a Delta table and is killed.

`python -m tests.unit.spark.appender MOMENT BATCH STORE TABLE CHECKPOINT` follows the stream
`orders` on the Spark of another process, which the environment names.
"""

import os
import signal
import sys
from typing import Any

from dueline.spark import append_once
from dueline.spark.writing import append
from tests.unit.spark.driver import attached

BEFORE, AFTER, NEVER = "before", "after", "never"
"""When it is killed: after the files are written, after they are committed, or not."""


def main(moment: str, batch: int, store: str, table: str, checkpoint: str) -> None:
    """Follow the stream to its end, or to the kill."""
    appending: Any = append
    real = appending.commit

    def struck(*arguments: Any) -> None:
        is_due = arguments[-1].version == batch
        if moment == BEFORE and is_due:
            os.kill(os.getpid(), signal.SIGKILL)
        real(*arguments)
        if moment == AFTER and is_due:
            os.kill(os.getpid(), signal.SIGKILL)

    appending.commit = struck
    spark = attached()
    for left in spark.streams.active:  # of the driver that was killed before
        left.stop()
    options = {"store": store, "table": "stream", "stream": "orders", "maxRowsPerTrigger": "50"}
    rows = spark.readStream.format("dueline").options(**options).load()
    rows = rows.selectExpr("cast(id AS string) AS id", "at", "cast(at AS date) AS day")

    def put(frame: Any, number: int) -> None:
        append_once(frame, number, table, partition_by=["day"])

    query = (
        rows.writeStream.foreachBatch(put)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    os._exit(0)  # Spark is not its own


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
