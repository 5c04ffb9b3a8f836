"""What the rows of a batch show of it once its answer was lost; no node is needed."""

from typing import Any, cast

import pytest

from dueline.core.errors import Unknown
from dueline.core.job import Job
from dueline.core.store import Extend, Move, Verdict
from dueline.store_tests.calls import NOW_US, move, new_jobs, token_of
from dueline.stores.cassandra.settlement import Verdicts, _Item
from dueline.stores.cursor_cache import CursorCache, key_of

REPLACED = token_of(99)


def result_of(moved: Move, other: Verdict) -> list[tuple[Job, bool]]:
    """Return what is known of a move that was sent with another verdict, if its row has gone on."""
    items = [_Item(place, verdict) for place, verdict in enumerate((moved, other))]
    for item in items:
        item.lost = Unknown("The answer was lost.")
    nothing = cast("Any", None)
    verdicts = Verdicts(nothing, CursorCache(), nothing)
    present = {key_of(moved.job): REPLACED, key_of(other.job): other.job.token}
    known: list[tuple[_Item, bool]] = []
    verdicts._is_known(items[0], items, present, known)
    return [(item.verdict.job, held) for item, held in known]


def test_a_batch_was_not_applied_if_another_row_of_it_is_as_before() -> None:
    first, second = new_jobs(2)
    applied = result_of(move(first, NOW_US + 1, token=80), move(second, NOW_US + 1, token=81))
    assert applied == [(first, False)]


def test_an_extended_row_does_not_show_whether_its_batch_was_applied() -> None:
    # It keeps its token, as if nothing had happened.
    first, second = new_jobs(2)
    with pytest.raises(Unknown):
        result_of(move(first, NOW_US + 1, token=80), Extend(second, NOW_US + 1, started=True))
