"""What a history tells, whatever rows it is told in: no Spark is started."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dueline import StoreCorrupt
from dueline.core.attempt import Ended
from dueline.core.store import Row
from dueline.jobs.history import rows_of_done
from dueline.jobs.history_batch import unbundled
from tests.harness.calls import row_of as job_row
from tests.harness.history_rows import JOBS, done_of, rows_of_each
from tests.harness.spark.readers import COLUMNS, table_of


def mixed(done: Sequence[Ended], singles: int) -> list[Row]:
    """Tell of some attempts in rows of their own, of the others in bundles, of some again."""
    return [*rows_of_done(done[singles:]), *rows_of_each(list(done[:singles])), *rows_of_done(done)]


@given(jobs=st.lists(JOBS, min_size=1, max_size=9, unique_by=lambda job: job.id), data=st.data())
def test_columns_of_bundles_are_those_of_rows_of_each(jobs: list[Any], data: st.DataObject) -> None:
    # T1; the same with few columns, since those alone are read
    rows = mixed(done_of(jobs), data.draw(st.integers(0, len(jobs))))
    apart = [one for row in rows for one in unbundled(row)]
    whole = table_of(rows, COLUMNS)
    assert whole == table_of(apart, COLUMNS)
    names = [column.split()[0] for column in COLUMNS.split(", ")]
    some = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    kinds = dict(column.split() for column in COLUMNS.split(", "))
    narrow = table_of(rows, ", ".join(f"{name} {kinds[name]}" for name in some))
    assert narrow == [{name: line[name] for name in some} for line in whole]
    details = table_of(rows, "detail string", "events")
    assert details == [{"detail": one.body.decode()} for one in apart]


def test_a_damaged_bundle_is_named() -> None:
    broken = Row("mail!history", 0, 5, b"0" * 16, b'{"many":2,"job":7}')
    with pytest.raises(StoreCorrupt, match="is not an attempt"):
        table_of([broken], "job_id string")


def test_rows_of_a_version_without_digests_have_none() -> None:
    done = done_of([job_row(number) for number in range(3)])
    (bundle,), single = rows_of_done(done), rows_of_each(done)[0]
    for row in (bundle, single):
        digests = {line["digest"] for line in table_of([row], "digest string, job_id string")}
        assert None not in digests
        (digest,) = digests
        cell = f',"digest":"{digest}"'.encode()
        assert cell in row.body
        old = row._replace(body=row.body.replace(cell, b""))
        assert {line["digest"] for line in table_of([old], COLUMNS)} == {None}
