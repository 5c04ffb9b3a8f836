"""Rows of many events have the columns of the history."""

from dueline.core.attempt import COLUMNS, Attempt, EnqueuedEvent
from dueline.jobs.history_batch import Bundle


def test_rows_of_many_events_have_a_column_for_each_field_of_an_event() -> None:
    assert set(COLUMNS) == set(EnqueuedEvent.__dataclass_fields__)
    assert list(COLUMNS)[: len(Attempt.__dataclass_fields__)] == list(Attempt.__dataclass_fields__)
    assert set(Bundle.__struct_fields__) == set(COLUMNS)
