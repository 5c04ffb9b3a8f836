"""What is asked of rates in a simulated life."""

from typing import Literal

from checker import EARLY_US_MAX
from checker.journal import Event
from dueline.core.job import Claim, JobId
from simulation.paced import UNDER_WAY_US, Closing, Taken, closings, over_rate, too_soon

JOB = JobId(bytes(16))
CLAIM = Claim(JOB, 1)
SAID = {CLAIM: ("steady",)}


def event(
    t: int, f: Literal["release", "settle"], at: int, kind: Literal["invoke", "ok"] = "ok"
) -> Event:
    return Event(t, "w", kind, f, id=JOB.hex(), attempt=1, at=at)


def test_a_limit_is_closed_from_its_workers_release_on() -> None:
    # F6
    events = [event(5, "release", 90, "invoke"), event(7, "release", 90)]
    assert closings(events, SAID) == [Closing(("steady",), 7, 90)]


def test_a_release_that_nobody_knows_the_end_of_closes_nothing() -> None:
    assert closings([event(5, "release", 90, "invoke")], SAID) == []


def test_an_operators_change_closes_nothing() -> None:
    waits = [event(5, "release", 90), event(8, "release", 700)]
    assert closings(waits, SAID) == [Closing(("steady",), 5, 90)]
    dead = [event(5, "settle", 0), event(8, "release", 700)]
    assert closings(dead, SAID) == []


def test_what_is_taken_of_a_closed_rate_is_told() -> None:
    closed = [Closing(("steady",), 7, 5000)]
    times = (6, 8, 5000 - EARLY_US_MAX, 5001)
    taken = [Taken(at, "steady", "w", 1) for at in times] + [Taken(9, "bucket", "w", 1)]
    (found,) = too_soon(taken, closed)
    assert "at_us=8" in found


def test_more_than_a_window_or_a_bucket_allows_is_told() -> None:
    # F5: three a second, and a bucket of two into which four a second flow
    window = [Taken(at_us, "steady", "w", 1) for at_us in (0, 1, 2, 999_999)]
    assert over_rate(window[:3]) == []
    assert len(over_rate(window)) == 1
    assert over_rate([*window[:3], Taken(1_000_000, "steady", "w", 1)]) == []
    bucket = [Taken(0, "bucket", "w", 2), Taken(250_000, "bucket", "w", 1)]
    assert over_rate(bucket) == []
    assert len(over_rate([*bucket, Taken(250_001, "bucket", "w", 1)])) == 1


def test_what_a_process_behind_writes_parts_what_is_judged() -> None:
    late = 10 * UNDER_WAY_US
    window = [Taken(at_us, "steady", "w", 1) for at_us in (0, 1, 2, 3, late, late + 1)]
    assert len(over_rate(window, [(late // 2, "steady")])) == 1  # the first four, by themselves
    assert over_rate(window, [(1, "steady")]) == []
    assert len(over_rate(window, [(1, "bucket")])) == 1
