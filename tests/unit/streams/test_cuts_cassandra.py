"""A stream on a real Cassandra, cut anew while it is in use."""

import threading

import pytest

from dueline import Batch, Dueline
from tests.harness.cassandra_node import PATIENT, expect_node, session_on_a_node

expect_node()
pytestmark = pytest.mark.cassandra

ENDS_WITHIN_S = 60


def test_nothing_is_lost_or_out_of_order_when_a_stream_is_cut_anew() -> None:
    # H7: two processes append, one of which learns late; events may come twice, with the same id
    with session_on_a_node("cuts") as session:
        url = f"{session.place}?{PATIENT}"
        apps = [Dueline(url), Dueline(url)]
        streams = [app.stream("clicks", shards=1) for app in apps]
        sent: dict[str, list[int]] = {}
        handled: dict[str, list[int]] = {}
        wakeup = threading.Condition()

        @streams[0].consumer("billing", lease=4)
        def bill(batch: Batch) -> None:
            with wakeup:
                for event in batch.events:
                    key, number = event.value
                    numbers = handled.setdefault(key, [])
                    if number not in numbers:
                        numbers.append(number)
                wakeup.notify_all()

        def put(count: int) -> None:
            for number in range(count):
                for name, stream in zip("ab", streams, strict=True):
                    key = f"{name}{number % 5}"
                    numbers = sent.setdefault(key, [])
                    numbers.append(len(numbers))
                    stream.append((key, numbers[-1]), key=key)

        put(10)
        with apps[0].consuming(threads=2):
            for shards in (7, 3):
                streams[1].reshard(shards)
                put(10)
            with wakeup:
                assert wakeup.wait_for(lambda: handled == sent, ENDS_WITHIN_S)
        assert len({event.id for event in streams[1].read()}) == sum(map(len, sent.values()))
        assert streams[0].look().first == 8
        for app in apps:
            app.close()
