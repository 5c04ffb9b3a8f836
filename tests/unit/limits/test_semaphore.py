"""Who may hold how many permits, and whose turn it is."""

from dataclasses import replace

import pytest

from dueline.core.clock import SECOND_US
from dueline.core.ids import Ids
from dueline.core.store import NO_VERSION
from dueline.limits.semaphore import (
    HANDOVER_US,
    WAIT_US,
    Hold,
    PermitRequest,
    Permits,
    Wait,
    after_turn,
    before,
    capacities,
    define,
    forget,
    in_use,
    next_in_turn,
    read,
    spare,
    with_hold,
    with_wait,
    write,
)
from dueline.stores.memory.store import MemoryStore
from tests.harness.clocks import HandClock

NOW_US = 1_000 * SECOND_US
LATER_US = NOW_US + 30 * SECOND_US
WISH = PermitRequest(4, 0, NOW_US, "q")


def waiting(count: int = 1, priority: int = 0, since_us: int = NOW_US, queue: str = "q") -> Wait:
    return Wait(count, priority, since_us, queue, NOW_US + WAIT_US)


def test_a_worker_may_hold_what_others_do_not() -> None:
    # F1, rule N1
    held = Permits({"a": Hold(2, LATER_US), "b": Hold(1, LATER_US)})
    assert spare(held, 5, "c", WISH, NOW_US) == 2
    assert spare(held, 5, "a", WISH, NOW_US) == 4
    assert spare(held, 3, "c", WISH, NOW_US) == 0
    assert spare(held, 1, "c", WISH, NOW_US) == 0  # it was made smaller meanwhile


def test_what_has_lapsed_is_free() -> None:
    # F1: permits of the dead come back by themselves
    held = Permits({"a": Hold(5, NOW_US), "b": Hold(1, NOW_US + 1)})
    assert held.in_use(NOW_US) == 1
    assert spare(held, 5, "c", WISH, NOW_US) == 4
    assert with_hold(held, "c", Hold(4, LATER_US), NOW_US).holders.keys() == {"b", "c"}


@pytest.mark.parametrize("is_over", [True, False])
def test_what_expires_counts_until_then(*, is_over: bool) -> None:
    end_us = NOW_US + SECOND_US
    now_us, names = end_us - (not is_over), set() if is_over else {"w"}
    permits = Permits(
        {"a": Hold(2, end_us)}, {"w": Wait(1, 5, 0, "q", end_us)}, freed_us=5, closed_us=end_us
    )
    assert permits.held("a", now_us) == permits.in_use(now_us) == (0 if is_over else 2)
    assert spare(permits, 5, "me", WISH, now_us) == (5 if is_over else 0)
    assert set(before(permits.waiting, "me", WISH, now_us)) == names
    assert set(before(permits.waiting, "w", WISH._replace(priority=-9), now_us)) == set()
    assert set(next_in_turn(permits, 1, "me", now_us)) == names
    held = with_hold(permits, "me", Hold(1, LATER_US), now_us)
    assert held.holders.keys() == {"me"} | (set() if is_over else {"a"})
    assert (held.closed_us, held.freed_us) == (0 if is_over else end_us, 5)
    asked = with_wait(permits, "me", WISH, now_us)
    assert asked is not None
    assert asked.waiting.keys() == {"me"} | names
    assert after_turn(replace(permits, freed_us=now_us), "me", WISH, now_us).waiting.keys() == names
    mine = with_wait(permits, "w", WISH, now_us)
    assert mine is not None
    assert mine.waiting["w"].priority == (0 if is_over else 5)


def test_of_its_own_waits_a_worker_has_the_turn_of_the_first() -> None:
    other = {"other": waiting(priority=3)}
    for mine, is_first in ((4, True), (2, False)):
        permits = Permits(waiting={**other, "me": waiting(priority=mine)})
        assert before(permits.waiting, "me", WISH, NOW_US) == ([] if is_first else ["other"])
        lapsed = replace(permits.waiting["me"], until_us=NOW_US)
        permits = Permits(waiting={**other, "me": lapsed})
        assert before(permits.waiting, "me", WISH, NOW_US) == ["other"]


def test_more_urgent_jobs_come_first_and_then_a_longer_wait() -> None:
    # F3, F4
    waits = {
        "late": waiting(since_us=NOW_US + 1),
        "early": waiting(since_us=NOW_US - 1),
        "urgent": waiting(priority=1, since_us=NOW_US + 9),
        "gone": Wait(1, 9, 0, "q", NOW_US),
    }
    permits = Permits(waiting=waits)
    assert set(before(permits.waiting, "me", WISH, NOW_US)) == {"early", "urgent"}
    assert set(before(permits.waiting, "early", WISH, NOW_US)) == {"urgent"}  # its own wait counts
    assert before(permits.waiting, "me", WISH._replace(priority=2), NOW_US) == []


def test_what_was_given_back_is_kept_for_those_whose_turn_it_is_for_a_while() -> None:
    # F3, rule N3
    permits = Permits({}, {"first": waiting(2, since_us=0)}, freed_us=NOW_US)
    assert spare(permits, 3, "me", WISH, NOW_US) == 1
    assert spare(permits, 3, "first", WISH, NOW_US) == 3
    over_us = NOW_US + HANDOVER_US
    assert spare(permits, 3, "me", WISH, over_us) == 3
    assert after_turn(permits, "me", WISH, NOW_US).waiting.keys() == {"first"}
    assert after_turn(permits, "me", WISH, over_us).waiting == {}  # it did not come


def test_only_those_who_waited_when_some_were_released_lose_their_place() -> None:
    # Rule N3
    waits = {f"{n}": waiting(since_us=NOW_US + n, priority=1) for n in (-1, 0, 1)}
    permits = Permits(waiting=waits, freed_us=NOW_US)
    for after_us, names in ((-1, {"-1", "0", "1"}), (0, {"1"})):
        left = after_turn(permits, "me", WISH, NOW_US + HANDOVER_US + after_us)
        assert left.waiting.keys() == names


def test_only_giving_some_back_keeps_them_for_others() -> None:
    permits = with_hold(Permits(), "a", Hold(2, LATER_US), NOW_US)
    assert permits.freed_us == 0
    less = with_hold(permits, "a", Hold(1, LATER_US), NOW_US + 5)
    assert (less.freed_us, less.held("a", NOW_US)) == (NOW_US + 5, 1)
    assert with_hold(less, "a", Hold(0, LATER_US), NOW_US + 6).holders == {}


def test_a_wait_is_said_once_and_then_from_time_to_time() -> None:
    said = with_wait(Permits(), "me", WISH, NOW_US)
    assert said is not None
    assert with_wait(said, "me", WISH, NOW_US + 1) is None
    again = with_wait(said, "me", WISH._replace(more=1, since_us=NOW_US + 1), NOW_US + WAIT_US // 2)
    assert again is not None
    assert again.waiting["me"].since_us == NOW_US  # for the longest of its waits
    urgent = with_wait(said, "me", WISH._replace(priority=3, since_us=NOW_US + 1), NOW_US + 1)
    assert urgent is not None
    assert urgent.waiting["me"].priority == 3


def test_as_many_are_next_as_permits_are_free_for_them_in_their_turn() -> None:
    # F3: more urgent jobs first, then a longer wait; not who has long not with_wait, nor oneself
    waits = {
        "a": Wait(1, 0, 5, "q", LATER_US),
        "b": Wait(2, 0, 4, "q", LATER_US),
        "c": Wait(2, 7, 9, "q", LATER_US),
        "gone": Wait(1, 9, 0, "q", NOW_US),
        "me": Wait(1, 9, 0, "q", LATER_US),
    }
    found = [next_in_turn(Permits(waiting=waits), free, "me", NOW_US) for free in range(6)]
    assert found == [[], ["c"], ["c"], ["c", "b"], ["c", "b"], ["c", "b", "a"]]


def test_a_record_goes_with_the_last_who_holds_or_waits() -> None:
    store, ids = MemoryStore(HandClock()), Ids()
    name = "host:example.org"
    held = Permits({"a": Hold(1, 2**62)})
    assert write(store, name, held, expect=NO_VERSION, ids=ids)
    assert not write(store, name, Permits(), expect=NO_VERSION + b"x", ids=ids)
    found, version = read(store, name)
    assert found == held
    assert in_use(store, "host") == {name: held}
    assert write(store, name, Permits(), expect=version, ids=ids)
    assert in_use(store, "host") == {}
    assert write(store, name, Permits(), expect=NO_VERSION, ids=ids)


def test_a_semaphore_is_made_resized_and_forgotten() -> None:
    store, ids = MemoryStore(HandClock()), Ids()
    define(store, "warehouse", 4, ids=ids)
    define(store, "warehouse", 0, ids=ids)
    define(store, "host", 2, ids=ids)
    assert capacities(store) == {"host": 2, "warehouse": 0}
    forget(store, "host")
    assert capacities(store) == {"warehouse": 0}
