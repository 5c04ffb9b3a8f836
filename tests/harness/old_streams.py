"""A stream with events old enough to be trimmed."""

from dueline.core.clock import DAY_US
from dueline.streams.consumer import Consumer
from dueline.streams.stream import Stream
from tests.harness.clocks import HandClock
from tests.harness.stream_stage import Stage

OLD = 4
"""How many events are older than they are kept, in the races below."""


def fill(stream: Stream, clock: HandClock, count: int = OLD) -> None:
    """Append events, each at an instant of its own."""
    for number in range(count):
        stream.append(number)
        clock.advance(1)


def kept(stream: Stream) -> list[object]:
    """Read the values of what is there."""
    return [event.value for event in stream.read()]


def old_stream(stage: Stage) -> Stream:
    """Make a stream with events that are older than they are kept, and a young one."""
    orders = stage.stream(1, keep_us=DAY_US)
    fill(orders, stage.clock)
    stage.clock.advance(us=2 * DAY_US)
    orders.append(OLD)
    stage.later()
    return orders


def one_more(member: Consumer) -> list[object]:
    """Let a member handle one event."""
    member.balance()
    batch = member.poll(0)
    if batch is None:
        return []
    member.commit(batch)
    return [event.value for event in batch.events]
