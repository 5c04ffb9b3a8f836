"""Streams, leases and sequences of an application, in real time."""

import pytest

from dueline import Conflict, Dueline, LeaseLost


def a_lease_has_one_holder_at_a_time(app: Dueline) -> None:
    with app.lease("nightly", ttl=60) as lease:
        assert (lease.epoch, lease.is_held) == (1, True)
        lease.check()
        with pytest.raises(Conflict, match="held by"), app.lease("nightly", ttl=60):
            raise AssertionError
        with app.lease("weekly") as other:
            assert other.epoch == 1
    assert not lease.is_held
    with pytest.raises(LeaseLost):
        lease.check()
    with app.lease("nightly", ttl=60, wait=60) as again:
        assert again.epoch == 2
    app.close()


def sequences_of_one_name_give_each_number_once(app: Dueline) -> None:
    one, two = app.sequence("orders", block=10), app.sequence("orders", block=10)
    numbers = [one.next(), two.next(), *one.many(12), two.next()]
    assert len(set(numbers)) == len(numbers)
    assert numbers[0] == 1
    app.close()
