"""Queues by hand, without tasks."""

import pytest

from dueline import Dueline, LeaseLost
from dueline.api.raw_queue import RawQueue


def what_was_put_in_is_claimed_and_acked(app: Dueline, raw: RawQueue) -> None:
    # A3, C4: ack ends it
    ids = raw.put([b"[1]", b"[2]"], task="of.another.framework")
    first, second = raw.claim(10)
    assert [first.id, second.id] == ids
    assert (first.body, first.task, first.attempt, first.fence) == (
        *(b"[1]", "of.another.framework"),
        *(1, 1),
    )
    assert app.job(first.id).status == "running"
    first.ack()
    assert app.job(first.id).status == "done"
    assert app.job(first.id).result(timeout=0) is None
    with pytest.raises(LeaseLost):
        first.ack()
    assert raw.ack([second, second]) == [second.id]
