"""A stream that is cut into another number of shards while it is in use."""

from tests.harness.stream_stage import Stage, values


def new_shards_wait_until_the_old_ones_are_read(stage: Stage) -> None:
    orders = stage.stream(1)
    orders.append_many([(number, "k") for number in range(30)])
    orders.reshard(4)
    orders.append(30, key="k")
    stage.later()
    slow, quick = stage.member(shards=None), stage.member(shards=None)
    stage.settle_down(slow, quick, beats=4)
    (old,) = [member for member in (slow, quick) if 0 in member.held]
    new = quick if old is slow else slow
    assert values(new) == []
    first = old.poll(0)
    assert first is not None
    old.commit(first)
    assert values(new) == []
    rest = values(old)
    stage.clock.advance(1)
    rest += values(new) + values(old)
    assert rest == list(range(10, 31))
