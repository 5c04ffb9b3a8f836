"""The results of the jobs that ended in a history."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Final, get_args

import pyarrow as pa
from pyarrow import compute

from dueline.core.attempt import FinalState
from dueline.core.codec import decode
from dueline.core.errors import StoreCorrupt
from dueline.core.job import JobId
from dueline.core.store import Record, Row, Store
from dueline.jobs import results
from dueline.jobs.history_batch import ID_BYTES
from dueline.spark.reading import history_columns

ENDS_MAX: Final = 100_000
"""Number of ended attempts whose results are looked up at once."""

_KEYS: Final = frozenset(
    ("job", "ended_us", "queue", "shard", "task", "tenant", "fence", "outcome", "error")
)
_FINAL: Final = get_args(FinalState)
_RESULT: Final = {
    "job": pa.string(), "ended_us": pa.int64(), "state": pa.string(), "value": pa.string(),
    "error": pa.string(), "traceback": pa.string(),
}  # fmt: skip
_NAMES: Final = {"job": "job_id", "fence": "attempt", "ended_us": "finished"}


def tables_of(store: Store, pages: Iterable[Sequence[Row]]) -> Iterator[pa.Table]:
    """Yield the kept results of the jobs that ended in pages of a history."""
    waiting: list[pa.Table] = []
    for rows in pages:
        page = pa.table(history_columns.columns(rows, _KEYS))
        waiting.append(page.filter(compute.is_in(page["outcome"], pa.array(_FINAL))))
        if sum(table.num_rows for table in waiting) >= ENDS_MAX:
            yield _with_results(store, pa.concat_tables(waiting))
            waiting = []
    if any(table.num_rows for table in waiting):
        yield _with_results(store, pa.concat_tables(waiting))


def _with_results(store: Store, ended: pa.Table) -> pa.Table:
    """Return the ends whose results are kept, with them.

    Jobs that share a record mostly ended in one shard, so most records of other shards are not
    decoded: those whose first job is not among these ends, unless results are missing.
    """
    is_done = compute.equal(ended["outcome"], "done")
    done = ended["job"].filter(is_done)
    starts = compute.unique(compute.utf8_slice_codeunits(done, 0, _PREFIX)).to_pylist()
    records = [(results.first_of(it), it) for it in results.shared_near(store, starts)]
    firsts = pa.array([first for first, _ in records], pa.string())
    known = frozenset(done.filter(compute.is_in(done, firsts)).to_pylist())
    shared, rest = _matched(ended, _shared([it for first, it in records if first in known]))
    own, rest = _matched(rest, _own(store, rest["job"].to_pylist()))
    missing = rest["job"].filter(compute.equal(rest["outcome"], "done"))
    others = [it for first, it in records if first not in known] if len(missing) else []
    kept = _shared(others)
    kept = kept.filter(compute.is_in(kept["job"], missing.combine_chunks()))
    return pa.concat_tables([shared, own, _matched(rest, kept)[0]])


def _matched(ended: pa.Table, kept: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the ends that have results, with them, and those that have none."""
    kept = kept.sort_by([("ended_us", "descending")])  # of a job that ended twice, the last one
    places = compute.index_in(ended["job"], kept["job"].combine_chunks())
    values = kept.take(places)
    is_kept = compute.equal(values["ended_us"], ended["ended_us"]).fill_null(False)  # noqa: FBT003
    matches = ended.filter(is_kept)
    for name in ("state", "value", "error", "traceback"):
        matches = matches.drop_columns([name] if name in matches.column_names else [])
        matches = matches.append_column(name, values[name].filter(is_kept))
    names = [_NAMES.get(name, name) for name in matches.column_names]
    return matches.rename_columns(names), ended.filter(compute.invert(is_kept))


_PREFIX: Final = len(results.prefix_of("0" * 2 * ID_BYTES))


def _shared(records: Sequence[Record]) -> pa.Table:
    """Return the results in shared records, which belong to jobs that are done."""
    decoded = [decode(record.value, results.Shared) for record in records]
    try:
        numbers = array(
            "q", b"".join([results.instants(shared.ended_us, shared.many) for shared in decoded])
        )
        numbers.byteswap()
        jobs = history_columns.digits_of(
            bytes.fromhex("".join([shared.job for shared in decoded])), ID_BYTES
        )
    except ValueError as error:
        raise StoreCorrupt(f"A record of shared results is damaged: {error}.") from error
    values = chain.from_iterable(
        repeat(shared.value, shared.many) if isinstance(shared.value, str) else shared.value
        for shared in decoded
    )
    texts = pa.array(list(values), pa.string())
    texts = compute.if_else(compute.equal(texts, ""), None, texts)
    if not len(jobs) == len(numbers) == len(texts):
        raise StoreCorrupt("A record of shared results lacks some of them.")
    none = pa.nulls(len(jobs), pa.string())
    ended_us = pa.Array.from_buffers(pa.int64(), len(jobs), [None, pa.py_buffer(numbers)])
    done = pa.repeat(pa.scalar("done", pa.string()), len(jobs))
    return pa.table([jobs, ended_us, done, texts, none, none], schema=pa.schema(_RESULT))


def _own(store: Store, jobs: Sequence[str]) -> pa.Table:
    """Return the results that have records of their own."""
    kept = results.read_own(store, [JobId(bytes.fromhex(job_id)) for job_id in jobs])
    cells = [
        (job.hex(), outcome.ended_us, outcome.state, outcome.value or None, outcome.error or None,
         outcome.traceback or None)
        for job, outcome in kept.items()
    ]  # fmt: skip
    columns = zip(*cells, strict=True) if cells else repeat((), len(_RESULT))
    return pa.table(
        [pa.array(column, kind) for column, kind in zip(columns, _RESULT.values(), strict=True)],
        schema=pa.schema(_RESULT),
    )
