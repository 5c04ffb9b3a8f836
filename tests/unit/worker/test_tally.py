"""What a worker counts for metrics."""

import pytest

from dueline.core.attempt import Done, Ended
from dueline.core.deadlines import LARGEST
from dueline.core.job import Job
from dueline.core.lane import lane_tenant
from dueline.core.store import Claimed, Want
from dueline.core.store_capabilities import Prefetched, PrefetchResult
from dueline.worker.tally import BUCKETS_S, Histogram, Tally, band_of
from tests.harness.calls import row_of
from tests.harness.clocks import NOW_US


def job(number: int = 1, *, fence: int = 1, priority: int = 0, limits: tuple[str, ...] = ()) -> Job:
    row = row_of(number)
    tenant = lane_tenant("", limits) if limits else ""
    return row._replace(fence=fence, lane=row.lane._replace(priority=priority, tenant=tenant))


def ended(row: Job, *, after_us: int = 100, took_us: int = 20) -> Ended:
    return Ended(row, Done(b"1"), NOW_US + after_us, NOW_US + after_us + took_us)


def count_of(histogram: Histogram) -> tuple[int, int]:
    return sum(histogram.counts), histogram.total_us


@pytest.mark.parametrize(
    ("priority", "band"),
    [(0, "normal"), (1, "high"), (-1, "low"), (LARGEST + 1, "low"), (LARGEST, "deadline")],
)
def test_a_priority_has_one_of_few_bands(priority: int, band: str) -> None:
    assert band_of(priority) == band
    tally = Tally()
    tally.ended([(ended(job(priority=priority)), "done")])
    assert list(tally.totals().latencies) == [("default", band)]


def test_a_duration_is_in_the_bucket_of_its_bound() -> None:
    for place, bound_s in enumerate(BUCKETS_S):
        for span_us, where in (
            (round(bound_s * 1e6), place),
            (round(bound_s * 1e6) + 1, place + 1),
        ):
            histogram = Histogram()
            histogram.add(span_us)
            assert (histogram.counts.index(1), histogram.total_us) == (where, span_us)
    for span_us in (0, -5):
        histogram = Histogram()
        histogram.add(span_us)
        assert (histogram.counts[0], histogram.total_us) == (1, 0)


def test_attempts_are_counted_by_their_outcome_and_first_ones_by_their_latency() -> None:
    tally = Tally()
    limited = job(2, limits=("s:a", "s:b", "t"))
    tally.ended([(ended(job()), "done"), (ended(job(fence=2)), "done"), (ended(limited), "done")])
    tally.ended([(ended(job()), "retried"), (ended(job())._replace(started_us=0), "expired")])
    totals = tally.totals()
    assert totals.attempts == {
        ("default", "tests.task", "done"): 3,
        ("default", "tests.task", "retried"): 1,
        ("default", "tests.task", "expired"): 1,
    }
    assert count_of(totals.runs["default", "tests.task"]) == (4, 80)
    assert count_of(totals.latencies["default", "normal"]) == (3, 300)
    assert {name: count_of(histogram) for name, histogram in totals.waits.items()} == {
        ("s",): (1, 100), ("t",): (1, 100),
    }  # fmt: skip
    totals.attempts.clear()
    assert len(tally.totals().attempts) == 3  # it was a copy


def test_claims_are_counted_as_new_taken_over_or_empty() -> None:
    tally, row = Tally(), job()
    want = [Want(row.lane, 1)]
    tally.claimed(want, Claimed([row, job(2), job(3)], {row.id: row}, {}))
    tally.claimed(want, Claimed([row], {}, {}))
    tally.claimed(want, Claimed([], {}, {}))
    tally.claimed([], Claimed([], {}, {}))
    tally.claimed(want, PrefetchResult([Prefetched(row, NOW_US)] * 2, {}))
    assert tally.totals().claims == {
        ("default", "new"): 5, ("default", "taken over"): 1, ("default", "empty"): 1,
    }  # fmt: skip


def test_lost_claims_calls_and_skews_are_counted() -> None:
    tally = Tally()
    for _ in range(2):
        tally.lost(job())
    tally.called("claim", "done", 7)
    tally.called("claim", "done", 8)
    tally.scheduled([5, 6])
    totals = tally.totals()
    assert totals.lost == {"default": 2}
    assert {kind: count_of(histogram) for kind, histogram in totals.calls.items()} == {
        ("claim", "done"): (2, 15)
    }
    assert count_of(totals.skews) == (2, 11)
