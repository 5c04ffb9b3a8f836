"""Slices of a store as Arrow batches; no Spark is needed here.

To read rows outside of Spark: `plan` (`partitions`) divides shards, from a position to the
watermark, and `read` returns the batches of the slices of one task.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from dueline.core.store import Row, Store
from dueline.spark.reading import job_columns, partitions, results, schemas
from dueline.spark.reading.data_loss import Losses
from dueline.spark.reading.partitions import LaneSlice, RowSlice

PAGE: Final = 20_000
"""Default number of rows of a batch."""


def read(
    store: Store,
    table: str,
    planned: Sequence[RowSlice | LaneSlice],
    schema: pa.Schema,
    *,
    losses: Losses,
    page: int = PAGE,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of slices as batches, one for about each page.

    Args:
        store: The store.
        table: "events", "attempts", "stream", "results" or "jobs".
        planned: Slices of the table.
        schema: The columns to read, as `schemas.wanted` returns them.
        losses: Reports rows that expired before they were read.
        page: Number of rows of a batch.

    Raises:
        StoreCorrupt: Rows expired before they were read.
    """
    if table == "results":
        for chunk in results.tables_of(store, _pages(store, planned, losses, page)):
            yield from schemas.batches_of_table(chunk, schema, page=page)
    elif table == "jobs":
        now_us = store.clock_us()
        for lane in planned:
            assert isinstance(lane, LaneSlice), "jobs are in lanes"
            yield from job_columns.batches_of(store, lane, schema, now_us=now_us, page=page)
    else:
        for rows in _pages(store, planned, losses, page):
            yield schemas.batch_of_rows(rows, schema, table=table)


def _pages(
    store: Store, planned: Sequence[RowSlice | LaneSlice], losses: Losses, page: int
) -> Iterator[Sequence[Row]]:
    for rows in planned:
        assert isinstance(rows, RowSlice), "histories and streams are in shards"
        yield from partitions.rows_of(store, rows, page=page)
        losses.was_read(store, rows)
