"""Streams, leases and sequences of an application, in real time."""

import os
import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dueline import Batch, Conflict, Dueline, LeaseLost
from dueline.core.errors import BadInput, NotFound

WAIT_S = 60


@pytest.fixture(params=["memory://", "memory://?transactional=off", "sqlite"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Dueline:
    """Make an application on each store."""
    url = request.param if request.param != "sqlite" else f"sqlite:///{tmp_path}/jobs.db"
    return Dueline(url)


class Heard:
    """What handlers were given."""

    def __init__(self, wanted: int) -> None:
        """Take how many values to wait for."""
        self.values: list[object] = []
        self._wanted = wanted
        self._is_full = threading.Event()

    def hear(self, batch: Batch) -> None:
        """Handle a batch."""
        self.values += [event.value for event in batch.events]
        if len(self.values) >= self._wanted:
            self._is_full.set()

    def wait(self) -> list[object]:
        """Wait until all has come."""
        assert self._is_full.wait(WAIT_S)
        return self.values


def test_what_is_appended_is_consumed(app: Dueline) -> None:
    clicks = app.stream("clicks", shards=3)
    heard, late = Heard(20), Heard(21)

    @clicks.consumer("billing", batch=7, lease=30)
    def bill(batch: Batch) -> None:
        heard.hear(batch)

    clicks.append_many([(number, str(number)) for number in range(10)])
    assert app._consumer_names() == ["clicks/billing"]
    with app.consuming():
        clicks.append_many([(number, str(number)) for number in range(10, 20)])
        assert sorted(map(repr, heard.wait())) == sorted(map(repr, range(20)))
        (member,) = clicks.members("billing")
        process = f"{socket.gethostname()}:{os.getpid()}"
        assert re.fullmatch(rf"{re.escape(process)}:[0-9a-f]{{8}}", member.name)
    assert [lag.rows for lag in clicks.lag("billing")] == [0, 0, 0]
    clicks.consumer("late", start="newest", lease=30)(late.hear)
    clicks.consumer("other", lease=30)(late.hear)
    with app.consuming(["clicks/other", "clicks/late"], threads=2):
        clicks.append("more")
        assert set(map(repr, late.wait())) >= {repr(number) for number in range(20)}
    app.close()


def test_a_handler_that_fails_is_called_again(app: Dueline) -> None:
    clicks = app.stream("clicks", shards=1)
    heard = Heard(3)
    fails = [RuntimeError("once"), LeaseLost("twice"), None]

    @clicks.consumer("billing", lease=30)
    def bill(batch: Batch) -> None:
        if error := fails.pop(0) if fails else None:
            raise error
        heard.hear(batch)

    clicks.append_many([(number, None) for number in range(3)])
    with app.consuming():
        assert heard.wait() == [0, 1, 2]
    app.close()


def test_a_lease_has_one_holder_at_a_time(app: Dueline) -> None:
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


def test_sequences_of_one_name_give_each_number_once(app: Dueline) -> None:
    first, second = app.sequence("orders", block=10), app.sequence("orders", block=10)
    numbers = [first.next(), second.next(), *first.many(12), second.next()]
    assert len(set(numbers)) == len(numbers)
    assert numbers[0] == 1
    app.close()


REFUSED: dict[str, Callable[[Dueline], object]] = {
    "stream": lambda app: app.stream("Not a name"),
    "group": lambda app: app.stream("s").consumer("Not a name"),
    "batch": lambda app: app.stream("s").consumer("g", batch=0),
    "park": lambda app: app.stream("s").consumer("g", park_after=0),
    "lease": lambda app: app.stream("s").consumer("g", lease=1),
    "start": lambda app: app.stream("s").consumer("g", start="monday"),
    "block": lambda app: app.sequence("s", block=0),
    "ttl": lambda app: app.lease("s", ttl=1).__enter__(),
    "unpark": lambda app: app.stream("s").unpark("g"),
}


@pytest.mark.parametrize("what", ["stream", "group", "lease", "sequence"])
def test_the_error_of_a_name_says_what_it_names(what: str) -> None:
    app = Dueline("memory://")
    named: dict[str, Callable[[str], object]] = {
        "stream": app.stream,
        "group": app.stream("s").consumer,
        "lease": lambda name: app.lease(name).__enter__(),
        "sequence": app.sequence,
    }
    with pytest.raises(BadInput, match=f"'Not a name' is not a {what} name"):
        named[what]("Not a name")


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
def test_what_is_out_of_range_is_refused(refused: Callable[[Dueline], object]) -> None:
    with pytest.raises(BadInput):
        refused(Dueline("memory://"))


def test_a_group_has_one_handler_and_must_be_known() -> None:
    app = Dueline("memory://")
    clicks = app.stream("clicks")
    clicks.consumer("billing")(print)
    with pytest.raises(BadInput, match="has a handler"):
        clicks.consumer("billing")
    assert app.stream("clicks") is clicks
    assert app.stream("clicks", shards=2).consumers.keys() == {"billing"}
    with pytest.raises(NotFound, match="clicks/billing"):
        app.consuming(["clicks/mail"]).__enter__()
    with pytest.raises(NotFound):
        Dueline("memory://").consuming().__enter__()
