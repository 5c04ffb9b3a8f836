"""Leases, checkpoints and sequences, whatever the order of the steps."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import pytest

from dueline.coordination.leases import Leases
from dueline.coordination.sequence import Sequence
from dueline.core.clock import StoreTime
from dueline.core.errors import StoreUnavailable, Unknown
from dueline.core.ids import Ids
from dueline.core.store import Records
from dueline.log.checkpoint import Place, open_under, read_all
from dueline.store_tests.coordination import (
    LATER,
    PLACE,
    TTL_US,
    MovedClock,
    leases_of,
    opened,
    step,
)
from dueline.stores.memory.store import MemoryStore
from tests.harness.cluster import Cluster
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.interleaving import Turns, every_order
from tests.harness.stepped_store import SteppedMemoryStore

IDS = Ids()


def clients(turns: Turns) -> tuple[SteppedMemoryStore, SteppedMemoryStore, MovedClock]:
    """Make two clients of one cluster, led by turns, and their clock."""
    clock, cluster = MovedClock(), Cluster()
    one, two = (SteppedMemoryStore(clock, cluster=cluster, step=turns.step) for _ in range(2))
    return one, two, clock


def test_a_lease_that_has_lapsed_is_lost() -> None:
    clock = MovedClock()
    one = leases_of(MemoryStore(clock), "one", clock)
    assert one.take("a") == 1
    clock.passed_us += TTL_US
    one.renew()
    assert one.epoch("a") is None


def test_each_grant_has_an_epoch_of_its_own() -> None:
    clock = MovedClock()
    store = MemoryStore(clock)
    assert leases_of(store, "one", clock).take("a") == 1
    clock.passed_us += 2 * TTL_US
    assert leases_of(store, "two", clock).hold_or_take("a") == 2


CALLS_MAX = 50


# --- races -----------------------------------------------------------------------------------


def test_two_stand_for_an_office_in_any_order() -> None:
    """Let two stand for an office that neither has seen, or that has lapsed."""

    # R6
    def lead(turns: Turns) -> None:
        one, two, clock = clients(turns)
        before = leases_of(one, "before", clock)
        before.take("monitor")
        clock.passed_us += 2 * TTL_US
        rivals = [leases_of(store, name, clock) for store, name in ((one, "one"), (two, "two"))]
        epochs: list[int | None] = []

        def stand(rival: Leases) -> None:
            epochs.append(rival.hold_or_take("monitor"))

        turns.run([partial(stand, rival) for rival in rivals])
        assert sorted(epoch or 0 for epoch in epochs) == [0, 2]
        assert [rival.epoch("monitor") for rival in rivals].count(2) == 1

    assert every_order(lead) > 10


def test_a_late_beat_and_a_takeover_in_any_order() -> None:
    """Let a holder beat late while another takes over; then each renews once more."""

    def lead(turns: Turns) -> None:
        one, two, clock = clients(turns)
        still = MovedClock()  # the holder's machine stands still
        holder, rival = leases_of(one, "one", still), leases_of(two, "two", clock)
        assert holder.take("a") == 1
        clock.passed_us += 2 * TTL_US
        turns.run([holder.renew, lambda: rival.hold_or_take("a")])
        holder.renew()
        rival.renew()
        assert [holder.epoch("a"), rival.epoch("a")] in ([1, None], [None, 2])

    assert every_order(lead) > 3


def test_a_stale_holder_and_the_next_one_in_any_order() -> None:
    """Let a stale holder write while the next one opens and writes."""

    # H5
    def lead(turns: Turns) -> None:
        one, two, _ = clients(turns)
        old = opened(one, 1)
        assert old is not None
        wrote: list[tuple[int, Place | None]] = []

        def stale() -> None:
            done = step(one, old, LATER)
            if done:
                wrote.append((1, LATER))

        def fresh() -> None:
            new = open_under(two, "laws", "0", epoch=2, version=IDS.token())
            assert new is not None
            wrote.append((2, new.place))
            place = LATER if new.place else PLACE
            assert step(two, new, place) is not None

        turns.run([stale, fresh])
        # What the old one wrote was seen by the new one, or refused: nothing is read twice
        # beside a product, and nothing is skipped.
        assert wrote in ([(1, LATER), (2, LATER)], [(2, None)])
        assert read_all(one, "laws")["0"].epoch == 2

    assert every_order(lead) > 3


def test_two_count_in_any_order() -> None:
    def lead(turns: Turns) -> None:
        one, two, _ = clients(turns)
        given: list[int] = []

        def count(store: Records) -> None:
            given.extend(Sequence(store, "s", ids=IDS, block=2).many(3))

        turns.run([partial(count, store) for store in (one, two)])
        assert len(set(given)) == 6

    assert every_order(lead) > 5


# --- answers that do not come ----------------------------------------------------------------


def tried_everywhere(act: Callable[[Records], object], fault: Fault) -> int:
    """Let each call of an act fail in turn; answer how many calls there are."""
    for number in range(1, CALLS_MAX):
        store = FailingStore(MemoryStore(MovedClock()), {number: fault})
        act(store)
        if store.calls < number:
            return number
    raise AssertionError("the act never comes to an end")


@pytest.mark.parametrize("fault", Fault)
def test_a_grant_of_unknown_outcome_is_held_by_nobody_or_by_its_taker(fault: Fault) -> None:
    def act(store: Records) -> None:
        clock = MovedClock()
        one, two = (leases_of(store, holder, clock) for holder in ("one", "two"))
        held = 0
        for _ in range(4):
            for rival in (one, two):
                try:
                    rival.hold_or_take("a")
                except StoreUnavailable:
                    continue
            held = sum(rival.epoch("a") is not None for rival in (one, two))
            assert held <= 1
            clock.passed_us += TTL_US // 2
        assert held == 1

    assert tried_everywhere(act, fault) > 5


@pytest.mark.parametrize("fault", Fault)
def test_a_checkpoint_of_unknown_outcome_can_be_read_back(fault: Fault) -> None:
    def act(store: Records) -> None:
        for epoch in range(1, 4):
            try:
                present = opened(store, epoch)
                assert present is not None
                if present.place is None:
                    step(store, present, PLACE)
            except Unknown:
                continue
        (left,) = read_all(store, "laws").values()
        assert (left.place, left.rows, left.epoch) == (PLACE, 1, 3)

    for number in range(1, 6):  # the last epoch always comes through
        act(FailingStore(MemoryStore(MovedClock()), {number: fault}))


@pytest.mark.parametrize("fault", Fault)
def test_numbers_of_unknown_outcome_are_given_once(fault: Fault) -> None:
    def act(store: Records) -> None:
        one, two = (Sequence(store, "s", ids=IDS, block=2) for _ in range(2))
        given: list[int] = []
        for _ in range(5):
            for numbers in (one, two):
                try:
                    given.append(numbers.next())
                except StoreUnavailable:
                    continue
        assert len(set(given)) == len(given) >= 9

    assert tried_everywhere(act, fault) > 5


# --- each rule is needed ---------------------------------------------------------------------


def test_a_lease_is_held_from_before_its_request_was_sent() -> None:
    # R6
    clock = MovedClock()

    class Slow(MemoryStore):
        def commit(self, partition: str, writes: object) -> bool:
            clock.passed_us += TTL_US // 4
            return super().commit(partition, writes)  # type: ignore[arg-type]  # passed on

    leases = leases_of(Slow(clock), "one", clock)
    assert leases.take("office") == 1
    ends_us = leases.look()["office"].until_us
    assert leases.sure_us("office") <= ends_us - clock.wall_us()


def test_the_margin_follows_the_round_trips() -> None:
    clock = MovedClock()

    class Slow(MemoryStore):
        def commit(self, partition: str, writes: object) -> bool:
            clock.passed_us += 400_000
            return super().commit(partition, writes)  # type: ignore[arg-type]  # passed on

    store = Slow(clock)
    time = StoreTime(clock.wall_us, clock)
    leases = Leases(store, "s", "one", ttl_us=TTL_US, time=time, clock=clock, ids=IDS)
    assert leases.take("a") == 1
    assert leases.sure_us("a") == TTL_US - 1_000_000 - 400_000
    leases.renew()
    assert leases.sure_us("a") == TTL_US - 1_600_000 - 400_000


def test_leases_are_listed_while_another_thread_loses_some() -> None:
    """A consumer's threads list its shards while its heartbeat changes them."""
    clock = MovedClock()
    leases = leases_of(MemoryStore(clock), "one", clock)
    for name in "abc":
        assert leases.take(name)

    class Losing(NamedTuple):
        lease: Any

        @property
        def sure_until_us(self) -> int:
            leases._held.pop("c", None)
            return int(self.lease.sure_until_us)

    leases._held["b"] = cast("Any", Losing(leases._held["b"]))
    assert {"a", "b"} <= set(leases.held)
