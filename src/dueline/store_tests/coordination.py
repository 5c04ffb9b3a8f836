"""Laws of leases, checkpoints and sequences, which use records."""

import threading

import pytest

from dueline.coordination.leases import Leases
from dueline.coordination.sequence import Sequence
from dueline.core.clock import SECOND_US, StoreTime
from dueline.core.errors import BadInput
from dueline.core.ids import Ids
from dueline.core.store import Records, Store
from dueline.log import checkpoint
from dueline.log.checkpoint import Checkpoint, open_under, read_all
from dueline.store_tests.calls import NOW_US

TTL_US = 10 * SECOND_US
PLACE = (NOW_US, b"\x01" * 16)
LATER = (NOW_US, b"\x02" * 16)
IDS = Ids()


class MovedClock:
    """A clock that the laws move; they do not use the store's clock."""

    def __init__(self) -> None:
        self.passed_us = 0

    def wall_us(self) -> int:
        """Return the wall clock."""
        return NOW_US + self.passed_us

    def monotonic_us(self) -> int:
        """Return the monotonic clock."""
        return self.passed_us

    def sleep(self, seconds: float) -> None:
        """Advance the clock."""
        self.passed_us += round(seconds * SECOND_US)


def leases_of(store: Records, holder: str, clock: MovedClock, *, jump_us: int = 0) -> Leases:
    """Return a holder of leases; jump_us: Its error in the store's clock."""
    time = StoreTime(lambda: clock.wall_us() + jump_us, clock)
    return Leases(store, "laws", holder, ttl_us=TTL_US, time=time, clock=clock, ids=IDS)


def opened(store: Records, epoch: int) -> Checkpoint | None:
    """Open the laws' checkpoint under an epoch."""
    return open_under(store, "laws", "0", epoch=epoch, version=IDS.token())


def step(store: Records, present: Checkpoint, place: checkpoint.Place) -> Checkpoint | None:
    """Advance a checkpoint by one row; return None if it was refused."""
    wanted = checkpoint.with_place(present, place, rows=1, version=IDS.token(), note="")
    return wanted if checkpoint.write(store, present, wanted) else None


class CoordinationLaws:
    """One holder at a time; checkpoints only advance; each number is given once."""

    # Leases

    def test_a_lease_has_one_holder(self, store: Store) -> None:
        clock = MovedClock()
        first, second = (leases_of(store, holder, clock) for holder in ("one", "two"))
        assert first.take("a") == 1
        assert second.take("a") is None  # the second holder has not read the lease
        second.look()
        assert (second.is_free("a"), second.take("a"), second.epoch("a")) == (False, None, None)
        assert (first.epoch("a"), list(first.held), list(second.held)) == (1, ["a"], [])
        assert (first.take("b"), second.take("c")) == (1, 1)

    def test_the_epoch_grows_with_each_grant_and_is_never_forgotten(self, store: Store) -> None:
        clock = MovedClock()
        for epoch in range(1, 8):
            holder = leases_of(store, f"holder {epoch}", clock)
            holder.look()
            assert holder.take("a") == epoch
            if epoch % 2:
                holder.release(["a"])
                assert holder.epoch("a") is None
            clock.sleep(0 if epoch % 2 else 86_400 * 365)

    def test_a_lease_that_is_renewed_is_nobody_elses(self, store: Store) -> None:
        clock = MovedClock()
        first, second = (leases_of(store, holder, clock) for holder in ("one", "two"))
        assert (first.take("a"), first.take("b")) == (1, 1)
        for _ in range(10):
            clock.sleep(TTL_US / SECOND_US / 4)
            assert first.renew() == []
            second.look()
            assert second.take("a") is None
        assert (first.epoch("a"), first.epoch("b")) == (1, 1)

    def test_a_holder_stops_before_anybody_else_may_start(self, store: Store) -> None:
        for jump_us in (0, -86_400 * SECOND_US):  # `second` uses the store's clock, or its own
            clock = MovedClock()
            scope = f"a{jump_us}"
            first = leases_of(store, "one", clock)
            second = leases_of(store, "two", clock, jump_us=jump_us)
            assert first.take(scope) == 1
            for _ in range(40):
                second.look()
                epoch = second.take(scope)
                if epoch is not None:
                    break
                clock.sleep(TTL_US / SECOND_US / 10)
            assert (epoch, first.epoch(scope), first.held) == (2, None, [])
            assert clock.passed_us <= TTL_US * (3 if jump_us else 2) // 2

    def test_a_lease_that_came_into_doubt_is_not_renewed(self, store: Store) -> None:
        # nobody took it over, but its holder has stopped and starts under a new epoch
        clock = MovedClock()
        first = leases_of(store, "one", clock)
        assert first.take("a") == 1
        clock.sleep(TTL_US / SECOND_US)
        assert first.renew() == ["a"]
        assert first.epoch("a") is None
        first.look()
        assert first.take("a") == 2

    def test_a_lease_that_was_taken_over_is_not_renewed(self, store: Store) -> None:
        clock, late = MovedClock(), MovedClock()  # the first clock does not advance
        first, second = leases_of(store, "one", late), leases_of(store, "two", clock)
        assert (first.take("a"), first.take("b")) == (1, 1)
        second.look()
        clock.sleep(2 * TTL_US / SECOND_US)
        assert second.take("a") == 2
        assert first.renew() == ["a"]
        assert (first.epoch("a"), first.epoch("b")) == (None, 1)
        assert second.renew() == []
        assert first.release(["a"]) is None  # type: ignore[func-returns-value]  # the first holder has no lease
        assert second.epoch("a") == 2

    def test_an_office_is_held_by_one_and_goes_on(self, store: Store) -> None:
        # R6
        clock = MovedClock()
        first, second = (leases_of(store, holder, clock) for holder in ("one", "two"))
        epochs = []
        for turn in range(30):
            stands = [] if 10 <= turn < 20 else [first.hold_or_take("monitor")]
            stands.append(second.hold_or_take("monitor"))
            assert len([epoch for epoch in stands if epoch]) <= 1
            epochs += [epoch for epoch in stands if epoch]
            clock.sleep(TTL_US / SECOND_US / 4)
        assert epochs == sorted(epochs)
        assert set(epochs) == {1, 2}

    # Checkpoints

    def test_a_checkpoint_is_read_back_as_it_was_left(self, store: Store) -> None:
        first = opened(store, 1)
        assert first is not None
        assert (first.place, first.rows, first.epoch) == (None, 0, 1)
        moved = step(store, first, PLACE)
        assert moved is not None
        assert read_all(store, "laws") == {"0": moved}
        assert (moved.place, moved.rows) == (PLACE, 1)

    def test_a_checkpoint_only_moves_forward(self, store: Store) -> None:
        first = opened(store, 1)
        assert first is not None
        later = step(store, first, LATER)
        assert later is not None
        with pytest.raises(AssertionError):
            step(store, later, PLACE)
        assert step(store, first, PLACE) is None  # the checkpoint has advanced since
        assert read_all(store, "laws")["0"].place == LATER

    def test_a_stale_holders_write_is_refused(self, store: Store) -> None:
        # H5: the next holder has not read a row yet
        old = opened(store, 1)
        new = opened(store, 2)
        assert old is not None
        assert new is not None
        assert step(store, old, PLACE) is None
        assert read_all(store, "laws")["0"] == new
        assert step(store, new, PLACE) is not None

    def test_a_stale_holder_cannot_open(self, store: Store) -> None:
        first = opened(store, 2)
        assert first is not None
        assert opened(store, 1) is None
        again = opened(store, 2)
        assert again is not None
        assert step(store, first, PLACE) is None
        assert step(store, again, PLACE) is not None

    # Sequences

    def test_numbers_are_given_once_and_grow(self, store: Store) -> None:
        holders = [Sequence(store, "orders", ids=IDS, block=size) for size in (1, 3, 10)]
        given: dict[int, list[int]] = {place: [] for place in range(3)}
        for turn in range(12):
            for place, holder in enumerate(holders):
                given[place] += holder.many(turn % 5) if turn % 2 else [holder.next()]
        for numbers in given.values():
            assert numbers == sorted(set(numbers))
        everything = [number for numbers in given.values() for number in numbers]
        assert len(everything) == len(set(everything))
        assert min(everything) == 1
        later = Sequence(store, "orders", ids=IDS).next()
        assert later > max(everything)
        assert Sequence(store, "invoices", ids=IDS).many(3) == [1, 2, 3]
        with pytest.raises(BadInput):
            holders[0].many(-1)

    def test_numbers_are_given_once_to_those_who_race(self, store: Store) -> None:
        given: list[list[int]] = []

        def count() -> None:
            numbers = Sequence(store, "orders", ids=IDS, block=5)
            given.append([numbers.next() for _ in range(20)])

        threads = [threading.Thread(target=count) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        everything = [number for numbers in given for number in numbers]
        assert (len(everything), len(set(everything))) == (80, 80)
        assert all(numbers == sorted(numbers) for numbers in given)
