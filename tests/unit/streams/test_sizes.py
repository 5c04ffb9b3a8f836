"""Streams that are kept by size (O7)."""

import pytest

from dueline.core.errors import BadInput
from dueline.core.features import STREAM_SIZES, names_of
from dueline.core.queue_settings import StreamSettings, check_stream_settings
from dueline.streams import sizes
from dueline.streams.retention import trim_streams
from dueline.streams.stream import Stream
from tests.harness.stream_stage import Stage, values

EVENT_BYTES = 1_000 + len(b'{"value":""}') + 16


def kept_by(stage: Stage, keep_bytes: int) -> Stream:
    """Make a handle on a stream that is kept by size."""
    return Stream(
        lambda: stage.queues.engine, "orders", owner=stage, shards=2, keep_us=None,
        keep_bytes=keep_bytes,
    )  # fmt: skip


def fill(stage: Stage, orders: Stream, minutes: int) -> None:
    """Append ten events of a thousand bytes in each minute."""
    for _ in range(minutes):
        for number in range(10):
            orders.append("x" * 1_000, key=str(number))
        stage.clock.advance(60)


def test_the_oldest_events_go_above_a_size(stage: Stage) -> None:
    orders = kept_by(stage, 55 * EVENT_BYTES)
    fill(stage, orders, 5)
    orders.expire()
    assert len(list(orders.read())) == 50
    fill(stage, orders, 5)
    orders.expire()
    assert 40 <= len(list(orders.read())) <= 55
    assert trim_streams(stage.queues.engine, None).acts == 0
    assert STREAM_SIZES in names_of(stage.store)
    assert stage.stream(None).look().keep_bytes == 55 * EVENT_BYTES  # others keep what is stored


def test_no_event_goes_that_a_group_needs(stage: Stage) -> None:
    orders = kept_by(stage, 5 * EVENT_BYTES)
    orders.look()
    member = stage.member(shards=None)
    member.balance()
    fill(stage, orders, 4)
    orders.expire()
    stage.later()
    member.balance()
    assert len(values(member)) == 40
    orders.expire()
    assert len(list(orders.read())) < 20


def test_counts_of_many_minutes_are_joined(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "SLICES_MAX", 4)
    orders = kept_by(stage, 45 * EVENT_BYTES)
    fill(stage, orders, 10)
    orders.expire()
    assert 20 <= len(list(orders.read())) <= 45


@pytest.mark.parametrize("size", [0, -1, "1 GB", 1.5])
def test_a_bad_size_is_refused(size: object) -> None:
    with pytest.raises(BadInput, match="keep_bytes"):
        check_stream_settings(StreamSettings(keep_bytes=size))  # type: ignore[arg-type]
