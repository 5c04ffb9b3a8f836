"""Groups and shards of a stream that are paused by hand (rule O2)."""

import time
from collections.abc import Callable

from dueline import Batch, Dueline
from tests.harness.stream_stage import Stage, values

SHARD = 1


def what_is_paused_waits_and_continues_where_it_stopped(stage: Stage) -> None:
    """Pause a group, then one of its shards, then that shard for all groups."""
    orders = stage.stream(3)
    members = {
        group: stage.member(shards=None, group=group, batch=2) for group in ("billing", "mail")
    }

    def read() -> dict[str, list[int]]:
        stage.later()
        return {group: sorted(values(member)) for group, member in members.items()}

    def append(first: int) -> set[int]:
        """Append twelve events; return those in the shard that is paused."""
        events = orders.append_many([(first + n, str(n)) for n in range(12)])
        return {event.value for event in events if event.shard == SHARD}

    append(0)
    stage.settle_down(*members.values())
    orders.pause(group="billing")
    assert read() == {"billing": [], "mail": list(range(12))}
    assert members["billing"].held == [0, 1, 2]
    orders.resume(group="billing")
    assert read() == {"billing": list(range(12)), "mail": []}
    orders.pause(group="mail", shard=SHARD)
    in_shard = append(20)
    everything = set(range(20, 32))
    found = read()
    assert (set(found["billing"]), set(found["mail"])) == (everything, everything - in_shard)
    orders.pause(shard=SHARD)
    orders.resume(group="mail", shard=SHARD)
    assert read()["mail"] == []
    orders.reshard(4)  # the pause stays
    assert read()["mail"] == []
    orders.resume(shard=SHARD)
    assert set(read()["mail"]) == in_shard


def a_group_is_paused(url: str) -> None:
    """Pause a group of a running consumer on a real store."""
    app = Dueline(url)
    clicks = app.stream("clicks", shards=2)
    seen: list[int] = []

    @clicks.consumer("billing")
    def bill(batch: Batch) -> None:
        seen.extend(event.value for event in batch.events)

    with app.consuming():
        clicks.append(1)
        assert in_time(lambda: seen == [1])
        clicks.pause(group="billing")
        time.sleep(0.6)  # more than a check of the settings
        clicks.append(2)
        time.sleep(0.6)
        assert (seen, sum(lag.rows for lag in clicks.lag("billing"))) == ([1], 1)
        clicks.resume(group="billing")
        assert in_time(lambda: seen == [1, 2])
    app.close()


def in_time(is_so: Callable[[], object]) -> bool:
    """Wait for something, as long as an operator does at most."""
    until_s = time.monotonic() + 5
    while not (found := is_so()) and time.monotonic() < until_s:
        time.sleep(0.01)
    return bool(found)
