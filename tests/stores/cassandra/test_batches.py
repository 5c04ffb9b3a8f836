"""How writes are split into batches; these tests need no node."""

from collections import deque

from dueline.core.codec import RESULT_BYTES_MAX
from dueline.store_tests.calls import NOW_US, move, new_jobs
from dueline.stores.cassandra.settlement import _Item, _next_batch
from dueline.stores.cassandra.statements import (
    BATCH_BYTES_MAX,
    BATCH_ROWS_MAX,
    SHARED_BYTES_MAX,
    SHARED_PARTITIONS_MAX,
    SHARED_ROWS_MAX,
    chunks,
    together,
)

HALF = BATCH_BYTES_MAX // 2


def test_a_batch_has_no_more_rows_than_allowed() -> None:
    rows = list(range(2 * BATCH_ROWS_MAX + 1))
    assert [len(batch) for batch in chunks(rows)] == [BATCH_ROWS_MAX, BATCH_ROWS_MAX, 1]
    assert [row for batch in chunks(rows) for row in batch] == rows


def test_a_batch_has_no_more_bytes_than_allowed() -> None:
    sizes = [HALF, HALF, 1, BATCH_BYTES_MAX, 3 * BATCH_BYTES_MAX, 1, 1]
    split = list(chunks(sizes, int))
    assert split == [[HALF, HALF], [1], [BATCH_BYTES_MAX], [3 * BATCH_BYTES_MAX], [1, 1]]


def parts(*sizes: int, rows: int = 1) -> list[int]:
    batches = [[("", [b"\0" * size])] * rows for size in sizes]
    split = list(together(batches))
    assert [batch for part in split for batch in batches[part]] == batches
    return [part.stop - part.start for part in split]


def test_small_batches_are_sent_together_and_others_by_themselves() -> None:
    assert parts(*[10] * 19) == [SHARED_PARTITIONS_MAX, SHARED_PARTITIONS_MAX, 3]
    half = SHARED_BYTES_MAX // 2
    assert parts(half, half, 1, SHARED_BYTES_MAX, BATCH_BYTES_MAX, 1, 1) == [2, 1, 1, 1, 2]
    assert parts(1, 1, rows=SHARED_ROWS_MAX) == [2]
    assert parts(1, 1, rows=SHARED_ROWS_MAX + 1) == [1, 1]
    assert parts() == []


def outcomes(count: int, size: int) -> deque[_Item]:
    jobs = new_jobs(count)
    ends = [move(job, NOW_US + 1, token=80)._replace(outcome=bytes(size)) for job in jobs]
    return deque(_Item(place, end) for place, end in enumerate(ends))


def test_outcomes_with_large_results_are_sent_in_several_batches() -> None:
    assert RESULT_BYTES_MAX > HALF
    waiting = outcomes(3, HALF + 1)
    assert [len(_next_batch(waiting)) for _ in range(3)] == [1, 1, 1]
    waiting = outcomes(BATCH_ROWS_MAX + 1, 100)
    assert [len(_next_batch(waiting)) for _ in range(2)] == [BATCH_ROWS_MAX, 1]
