"""What a history tells, whatever rows it is noted in: no Spark is started (P1)."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dueline import StoreCorrupt
from dueline.core.attempt import Ended, Failed
from dueline.core.job import Job
from dueline.core.store import Row
from dueline.jobs.history import (
    AttemptAndJob,
    attempt_of,
    row_of,
    row_of_enqueue,
    rows_of_ended,
    rows_of_enqueued,
)
from dueline.jobs.history_batch import unbundled
from tests.harness.calls import row_of as job_row
from tests.harness.history_rows import JOBS, TEXTS, done_of, rows_of_each
from tests.harness.spark.readers import COLUMNS, table_of

SOME_JOBS = st.lists(JOBS, min_size=1, max_size=9, unique_by=lambda job: job.id)


def failed_of(jobs: Sequence[Job], words: Sequence[str]) -> list[AttemptAndJob]:
    """Let jobs fail, some with the same words."""
    ending = Failed("OSError", "no", "", retry=True)
    return [
        (attempt_of(Ended(job, ending, n, n + 5), outcome="retried", error=word), job)
        for n, (job, word) in enumerate(zip(jobs, words, strict=False), 1)
    ]


def mixed(done: Sequence[Ended], singles: int, noted: Sequence[AttemptAndJob]) -> list[Row]:
    """Tell of some attempts in rows of their own, of the others in bundles, of some again."""
    jobs = [one.job for one in done]
    return [
        *rows_of_enqueued(jobs, with_arguments=False),
        *rows_of_ended(done[singles:], noted),
        *rows_of_each(list(done[:singles])),
        *rows_of_ended(done),
        *rows_of_ended((), noted),
    ]


def in_order(lines: Sequence[dict[str, Any]]) -> list[str]:
    """Order lines: singles come before those of bundles."""
    return sorted(map(repr, lines))


@given(jobs=SOME_JOBS, words=st.lists(TEXTS, max_size=9), data=st.data())
def test_columns_of_bundles_are_those_of_rows_of_each(
    jobs: list[Any], words: list[str], data: st.DataObject
) -> None:
    # T1; the same with few columns, since those alone are read
    rows = mixed(done_of(jobs), data.draw(st.integers(0, len(jobs))), failed_of(jobs[::-1], words))
    apart = [one for row in rows for one in unbundled(row)]
    whole = table_of(rows, COLUMNS)
    assert in_order(whole) == in_order(table_of(apart, COLUMNS))
    names = [column.split()[0] for column in COLUMNS.split(", ")]
    some = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    kinds = dict(column.split() for column in COLUMNS.split(", "))
    narrow = table_of(rows, ", ".join(f"{name} {kinds[name]}" for name in some))
    assert narrow == [{name: line[name] for name in some} for line in whole]
    details = table_of(rows, "detail string", "events")
    assert in_order(details) == in_order([{"detail": one.body.decode()} for one in apart])


@given(jobs=SOME_JOBS, words=st.lists(TEXTS, min_size=9, max_size=9), arguments=st.booleans())
def test_events_have_the_same_rows_alone_and_together(
    jobs: list[Job],
    words: list[str],
    arguments: bool,  # noqa: FBT001
) -> None:
    def place_of(row: Row) -> tuple[Any, ...]:
        return row.stream, row.shard, row.id, row.body

    done, noted = done_of(jobs), failed_of(jobs, words)
    together = [one for row in rows_of_ended(done, noted) for one in unbundled(row)]
    alone = [*rows_of_each(done), *(row_of(*one) for one in noted)]
    assert sorted(map(place_of, together)) == sorted(map(place_of, alone))
    enqueued = rows_of_enqueued(jobs, with_arguments=arguments)
    alone = [row_of_enqueue(job, with_arguments=arguments) for job in jobs]
    apart = [one for row in enqueued for one in unbundled(row)]
    if arguments:
        read = [*table_of(enqueued, COLUMNS), *table_of(enqueued, "detail string", "events")]
        expected = [*table_of(alone, COLUMNS), *table_of(alone, "detail string", "events")]
        assert in_order([one | {"at": 0} for one in read]) == in_order(
            [one | {"at": 0} for one in expected]
        )
    else:
        assert sorted(map(place_of, apart)) == sorted(map(place_of, alone))


def test_a_page_may_have_more_texts_than_a_byte_counts() -> None:
    jobs = [job_row(number)._replace(worker="w1") for number in range(600)]
    noted = failed_of(jobs, [f"no {number}" for number in range(600)])
    rows = rows_of_ended((), noted)
    assert len(rows) == 6
    errors = [line["error"] for line in table_of(rows, "error string")]
    assert sorted(errors) == sorted(attempt.error for attempt, _ in noted)


@pytest.mark.parametrize("cut", [4, 40, -1])
def test_a_damaged_bundle_is_named(cut: int) -> None:
    (row,) = rows_of_ended(done_of([job_row(number) for number in range(9)]))
    with pytest.raises(StoreCorrupt, match=row.id.hex()):
        table_of([row._replace(body=row.body[:cut])], "job_id string")
