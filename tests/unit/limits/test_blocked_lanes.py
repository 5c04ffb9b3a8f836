"""Lanes whose limits refused: when their limits are asked again, and since when they wait."""

from dueline.limits.blocked_lanes import BlockedLanes
from dueline.store_tests.calls import NOW_US, lane_of

ONE, TWO = lane_of(priority=1), lane_of(priority=2)


def blocked() -> BlockedLanes:
    """Return two lanes that wait for a limit, one of them for another limit too."""
    lanes = BlockedLanes()
    lanes.refused({"s": NOW_US + 5, "t": NOW_US + 9})
    assert lanes.block([ONE, TWO], ["s"], {ONE: NOW_US - 7, TWO: None}) == NOW_US + 5
    assert lanes.block([TWO], ["s", "t"], {TWO: NOW_US - 3}) == NOW_US + 9
    return lanes


def test_a_limit_that_refused_is_not_asked_before_its_time() -> None:
    lanes = blocked()
    assert lanes.has_refusals()
    assert lanes.among(["s", "t", "free"], NOW_US + 4) == ["s", "t"]
    assert lanes.among(["s", "t"], NOW_US + 5) == ["t"]
    assert lanes.asked_before(NOW_US + 5) == []
    assert lanes.asked_before(NOW_US + 6) == ["s"]


def test_permits_of_a_limit_unblock_the_lanes_that_wait_for_it() -> None:
    lanes = blocked()
    assert lanes.take(["t"]) == {TWO}
    assert lanes.take(["t"]) == set()
    assert lanes.among(["s", "t"], NOW_US) == ["s"]
    assert lanes.take(["s"]) == {ONE, TWO}
    assert not lanes.has_refusals()


def test_a_lane_has_waited_since_its_first_job_was_due_until_it_is_scanned() -> None:
    lanes = blocked()
    lanes.block([ONE], ["s"], {ONE: NOW_US - 1})
    assert lanes.since_us == {ONE: NOW_US - 7, TWO: NOW_US - 3}
    lanes.visited([ONE])
    assert lanes.since_us == {TWO: NOW_US - 3}


def test_all_is_forgotten_when_the_lane_list_is_read_again() -> None:
    lanes = blocked()
    lanes.forget()
    assert not lanes.has_refusals()
    assert lanes.since_us == {}
    assert lanes.among(["s", "t"], NOW_US) == []
    assert lanes.take(["s", "t"]) == set()
