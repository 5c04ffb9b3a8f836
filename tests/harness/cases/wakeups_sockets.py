"""Datagrams to the workers of a queue file."""

import threading

from dueline.core.lane import Lane
from dueline.core.wakeup import Signal, Wakeup
from dueline.stores.sqlite.wakeup import (
    DATAGRAMS_SURE,
    SocketWakeups,
)

ROUNDS = 20
LANE = Lane("mail", 0, 20_000, -5, "tenant")


def lost(wakeups: SocketWakeups) -> None:
    """Send more wake-ups than a socket surely holds: the lane lists must be read."""
    listener = wakeups.listen(["mail"], Signal())
    try:
        for count in (1, DATAGRAMS_SURE, DATAGRAMS_SURE + 1, 40):
            for shard in range(count):
                wakeups.wake([Wakeup("mail", 17, LANE._replace(shard=shard))])
            names_all = all(one.lane for one in listener.take())
            assert names_all == (count <= DATAGRAMS_SURE)
    finally:
        listener.close()


def all_threads(wakeups: SocketWakeups) -> None:
    """Let several threads wait: one wake-up ends all waits.

    If all of them see the datagram before one takes it, all wake up in any case: so, many rounds.
    """
    signal = Signal()
    listener = wakeups.listen(["mail"], signal)
    try:
        for _ in range(ROUNDS):
            signal.clear()
            threads = [
                threading.Thread(target=listener.wait, args=(60.0,), daemon=True) for _ in range(3)
            ]
            for thread in threads:
                thread.start()
            wakeups.wake([Wakeup("post")])
            wakeups.wake([Wakeup("mail")])
            for thread in threads:
                thread.join(10.0)
                assert not thread.is_alive()
            listener.take()
    finally:
        listener.close()
