"""`dueline streams`, and the shards of groups."""

from collections.abc import Iterator

import pytest

from dueline import Dueline, groups
from dueline.batch import Terms
from dueline.clock import DAY_US
from dueline.consumer import Consumer
from dueline.recipes.lease import Leases
from tests.cli.conftest import Shell

TTL_US = DAY_US


@pytest.fixture
def app(shell: Shell) -> Iterator[Dueline]:
    """Make an application on the store of the shell's folder."""
    assert shell is not None
    app = Dueline("sqlite:///jobs.db")
    yield app
    app.close()


def member(app: Dueline, name: str) -> Consumer:
    """Make a member of a group of the stream `clicks`."""
    return Consumer(
        app.queues,
        app.clock,
        name,
        stream="clicks",
        settings=app.stream("clicks").look,
        group="billing",
        terms=Terms(ttl_us=TTL_US),
    )


def test_no_stream_is_no_error(shell: Shell) -> None:
    answer = shell.app("streams", "list")
    assert answer.code == 0
    assert answer.err == "There is no stream yet; the first append makes one.\n"
    assert shell.app("streams", "show", "nosuch").code == 4
    assert shell.app("streams", "reshard", "nosuch", "--shards", "2").code == 4


def test_streams_tell_who_reads_them_and_how_far_it_is_behind(shell: Shell, app: Dueline) -> None:
    clicks = app.stream("clicks", shards=2, keep=60)
    clicks.append_many([(number, str(number)) for number in range(10)])
    one = member(app, "here:1:ab")
    one.balance()
    (listed,) = shell.app("streams", "list", "-o", "json").data
    assert (listed["stream"], listed["shards"], listed["groups"]) == ("clicks", 2, "billing")
    assert listed["keep_s"] == 60
    shown = shell.app("streams", "show", "clicks", "-o", "json").data
    assert [lag["holder"] for lag in shown["lags"]] == ["here:1:ab"] * 2
    assert sum(lag["behind"] for lag in shown["lags"]) == 10
    batch = one.poll(0)
    assert batch is not None
    one.commit(batch)
    lag = shell.app("streams", "show", "clicks", "-o", "json").data["lags"][0]
    assert (lag["behind"], lag["read"]) == (0, len(batch.events))


def test_a_stream_is_cut_anew(shell: Shell, app: Dueline) -> None:
    # H7
    app.stream("clicks", shards=2).append(1)
    data = shell.app("streams", "reshard", "clicks", "--shards", "3", "-o", "json").data
    assert (data["shards"], data["shards_read"]) == (3, 5)
    assert app.stream("clicks").look().shards == 3
    assert shell.app("streams", "reshard", "clicks", "--shards", "0").code == 2


def test_owners_of_a_streams_shards_are_told(shell: Shell, app: Dueline) -> None:
    app.stream("clicks", shards=2).append(1)
    member(app, "here:1:ab").balance()
    owners = shell.app("shards", "owners", "-o", "json").data
    assert [(one["scope"], one["name"], one["holder"]) for one in owners] == [
        ("stream-leases/clicks/billing", "0", "here:1:ab"),
        ("stream-leases/clicks/billing", "1", "here:1:ab"),
    ]


def test_a_stuck_member_gives_up_what_is_beyond_its_share(shell: Shell, app: Dueline) -> None:
    app.stream("clicks", shards=4).append(1)
    stuck = member(app, "stuck")
    stuck.balance()
    answer = shell.app("shards", "rebalance", "clicks/billing")
    assert answer.err == "Nobody holds more than its share.\n"
    other = member(app, "other")
    other.balance()
    assert other.held == []
    freed = shell.app("shards", "rebalance", "clicks/billing", "-o", "json").data
    assert [one["holder"] for one in freed] == ["stuck", "stuck"]
    other.balance()
    assert sorted(other.held) == sorted(int(one["name"]) for one in freed)
    assert shell.app("shards", "rebalance", "clicks/nosuch").code == 4


def test_any_lease_of_many_is_set_free(shell: Shell, app: Dueline) -> None:
    queues = app.queues
    leases = Leases(
        queues.store, groups.leases_at("s", "g"), "here", ttl_us=TTL_US,
        time=queues.time, clock=app.clock, ids=queues.ids,
    )  # fmt: skip
    names = [f"{number:05}" for number in range(1100)]  # more than a page of records
    for name in names[:-1]:
        leases._seen.clear()
        leases._held.clear()
        leases.take(name)
    assert leases.take(names[-1]) == 1
    scope = groups.leases_at("s", "g")
    data = shell.app("shards", "release", names[-1], "--scope", scope, "-o", "json").data
    assert (data["name"], data["is_held"]) == (names[-1], False)


def test_shards_of_a_member_that_is_gone_are_freed(shell: Shell, app: Dueline) -> None:
    app.stream("clicks", shards=2).append(1)
    member(app, "gone").balance()
    groups.leave(app.queues.store, "clicks", "billing", "gone")
    freed = shell.app("shards", "rebalance", "clicks/billing", "-o", "json").data
    assert [one["holder"] for one in freed] == ["gone", "gone"]
