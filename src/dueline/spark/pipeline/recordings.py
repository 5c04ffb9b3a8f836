"""Recorded attempts in Arrow, as the simulation reads them."""

import zlib
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import compute

from dueline.core.lane import COST_MARK, LIMIT_MARK
from dueline.foresight.record import Kind, Record

SEPARATOR = "\x1e"


def records_in(rows: pa.Table, *, with_hashes: bool) -> Iterator[Record]:
    """Yield the record of each pool in rows of `sql/simulated.sql`, in their order."""
    pools = rows.column("pool").combine_chunks()
    places = compute.run_end_encode(pools)
    begin = 0
    for end in places.run_ends.to_pylist() if rows.num_rows else ():
        yield _record(rows.slice(begin, end - begin), with_hashes=with_hashes)
        begin = end


def _record(rows: pa.Table, *, with_hashes: bool) -> Record:
    kinds, kind = _coded(rows.column("kind"))
    workers, worker = _coded(rows.column("worker"))
    numbers = [
        _numbers(rows.column(name))
        for name in ("nth", "ready_us", "is_early", "claimed_us", "started_us", "ended_us")
    ]
    hashes: Sequence[int] = ()
    if with_hashes:
        ids = rows.column("job_id").to_pylist()
        hashes = array("Q", (zlib.crc32(bytes.fromhex(job_id)) for job_id in ids))
    parts = [list(map(_kind_of, kinds)), kind, *numbers, worker, workers, hashes]
    return Record._make(parts)


def _kind_of(text: str) -> Kind:
    queue, task, tenant, priority, limits, shard = text.split(SEPARATOR)
    parts = limits.split(LIMIT_MARK) if limits else ()
    names = tuple(part.partition(COST_MARK)[0] for part in parts)
    return Kind(queue, task, tenant, int(priority), names, int(shard))


def _coded(column: pa.ChunkedArray) -> tuple[list[str], Sequence[int]]:
    """Return the different texts of a column, and the number of each row's."""
    coded = column.combine_chunks().dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    return coded.dictionary.to_pylist(), _numbers(coded.indices)


def _numbers(column: Any) -> Sequence[int]:  # noqa: ANN401  (an array or a chunked one)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    whole = column.cast(pa.int64())
    view = memoryview(whole.buffers()[1]).cast("q")
    return view[whole.offset : whole.offset + len(whole)]
