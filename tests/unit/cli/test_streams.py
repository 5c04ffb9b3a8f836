"""`dueline streams`, and the shards of groups (V7)."""

import json
import signal
from collections.abc import Iterator

import pytest

from dueline import Dueline, NotFound
from dueline.coordination.leases import Leases
from dueline.core.clock import DAY_US
from dueline.streams import groups
from dueline.streams.batch import ConsumerOptions
from dueline.streams.consumer import Consumer
from tests.harness.shell import WAIT_S, Shell

TTL_US = DAY_US


@pytest.fixture
def app(shell: Shell) -> Iterator[Dueline]:
    """Make an application on the store of the shell's folder."""
    assert shell is not None
    app = Dueline("sqlite:///jobs.db")
    yield app
    app.close()


def member(app: Dueline, name: str, *, park_after: int | None = None) -> Consumer:
    """Make a member of a group of the stream `clicks`."""
    return Consumer(
        app.queues.engine,
        app.clock,
        name,
        stream="clicks",
        settings=app.stream("clicks").look,
        group="billing",
        terms=ConsumerOptions(ttl_us=TTL_US, park_after=park_after),
    )


def test_no_stream_is_no_error(shell: Shell) -> None:
    answer = shell.app("streams", "list")
    assert answer.code == 0
    assert answer.err == "No streams. The first append creates one.\n"
    assert shell.app("streams", "show", "nosuch").code == 4
    assert shell.app("streams", "reshard", "nosuch", "--shards", "2").code == 4


def test_streams_tell_who_reads_them_and_how_far_it_is_behind(shell: Shell, app: Dueline) -> None:
    clicks = app.stream("clicks", shards=2, keep=60)
    clicks.append_many([(number, str(number)) for number in range(10)])
    consumer = member(app, "here:1:ab")
    consumer.balance()
    (listed,) = shell.app("streams", "list", "-o", "json").data
    assert (listed["stream"], listed["shards"], listed["groups"]) == ("clicks", 2, "billing")
    assert listed["keep_s"] == 60
    shown = shell.app("streams", "show", "clicks", "-o", "json").data
    assert [lag["holder"] for lag in shown["lags"]] == ["here:1:ab"] * 2
    assert sum(lag["behind"] for lag in shown["lags"]) == 10
    batch = consumer.poll(0)
    assert batch is not None
    consumer.commit(batch)
    lag = shell.app("streams", "show", "clicks", "-o", "json").data["lags"][0]
    assert (lag["behind"], lag["read"]) == (0, len(batch.events))


def test_a_group_and_a_shard_are_paused(shell: Shell, app: Dueline) -> None:
    # O13
    app.stream("clicks", shards=2).append(1)
    member(app, "here:1:ab").balance()
    pause, resume = ("streams", "pause", "clicks"), ("streams", "resume", "clicks")
    for words in (["--group", "billing"], ["--shard", "1"]):
        assert shell.app(*pause, *words).code == 0
    shown = shell.app("streams", "show", "clicks", "-o", "json").data
    assert shown["paused"] == ["group billing", "shard 1"]
    assert [lag["paused"] for lag in shown["lags"]] == [True, True]
    data = shell.app(*resume, "--group", "billing", "-o", "json").data
    assert data["paused"] == ["shard 1"]
    shown = shell.app("streams", "show", "clicks", "-o", "json").data
    assert [lag["paused"] for lag in shown["lags"]] == [False, True]
    assert shell.app(*pause).code == 2
    assert shell.app(*pause, "--group", "nosuch").code == 4


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
    assert [(owner["scope"], owner["name"], owner["holder"]) for owner in owners] == [
        ("stream-leases/clicks/billing", "0", "here:1:ab"),
        ("stream-leases/clicks/billing", "1", "here:1:ab"),
    ]


def test_a_stuck_member_gives_up_what_is_beyond_its_share(shell: Shell, app: Dueline) -> None:
    app.stream("clicks", shards=4).append(1)
    stuck = member(app, "stuck")
    stuck.balance()
    answer = shell.app("shards", "rebalance", "clicks/billing")
    assert answer.err == "No member holds more than its share.\n"
    other = member(app, "other")
    other.balance()
    assert other.held == []
    freed = shell.app("shards", "rebalance", "clicks/billing", "-o", "json").data
    assert [owner["holder"] for owner in freed] == ["stuck", "stuck"]
    other.balance()
    assert sorted(other.held) == sorted(int(owner["name"]) for owner in freed)
    assert shell.app("shards", "rebalance", "clicks/nosuch").code == 4


def test_any_lease_of_many_is_set_free(shell: Shell, app: Dueline) -> None:
    queues = app.queues
    leases = Leases(
        queues.engine.store, groups.leases_at("s", "g"), "here", ttl_us=TTL_US,
        time=queues.engine.time, clock=app.clock, ids=queues.engine.ids,
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
    groups.leave(app.queues.engine.store, "clicks", "billing", "gone")
    freed = shell.app("shards", "rebalance", "clicks/billing", "-o", "json").data
    assert [owner["holder"] for owner in freed] == ["gone", "gone"]


# What is in a stream


def lines(shell: Shell, *words: str) -> list[dict[str, object]]:
    """Read the stream `clicks`, as a program does."""
    answer = shell.app("streams", "read", "clicks", "-o", "ndjson", *words)
    assert answer.code == 0, answer
    return [json.loads(line) for line in answer.out.splitlines()]


def test_a_streams_events_are_printed_in_order(shell: Shell, app: Dueline) -> None:
    clicks = app.stream("clicks", shards=3)
    events = clicks.append_many([({"n": number}, str(number % 4)) for number in range(12)])
    everything = lines(shell)
    assert [event["value"] for event in everything] == [event.value for event in clicks.read()]
    assert {event["id"] for event in everything} == {event.id for event in events}
    assert [event["value"] for event in lines(shell, "--key", "1")] == [
        {"n": 1},
        {"n": 5},
        {"n": 9},
    ]
    (shard,) = {event.shard for event in events if event.key == "2"}
    only = lines(shell, "--shard", str(shard))
    assert {event["shard"] for event in only} == {shard}
    assert {1, 2} & {event["shard"] for event in everything}
    assert lines(shell, "--limit", "5") == everything[:5]
    table = shell.app("streams", "read", "clicks", "--limit", "1").out.splitlines()
    assert table[0].split() == ["AT", "SHARD", "KEY", "POSITION", "VALUE"]
    assert str(everything[0]["position"]) in table[1]
    assert clicks.groups() == []  # it is nobody's reading


def test_a_stream_is_read_from_a_place_to_a_place(shell: Shell, app: Dueline) -> None:
    clicks = app.stream("clicks", shards=1)
    for number in range(5):
        clicks.append(number)
    everything = lines(shell)
    second, fourth = str(everything[1]["position"]), str(everything[3]["position"])
    assert lines(shell, "--since", second) == everything[2:]
    assert lines(shell, "--until", fourth) == everything[:4]
    assert lines(shell, "--since", second, "--until", fourth) == everything[2:4]
    assert lines(shell, "--since", "1h") == everything
    assert lines(shell, "--since", "newest") == []
    assert lines(shell, "--until", "1h") == []
    assert lines(shell, "--since", str(everything[3]["at"])) == everything[3:]


def test_what_cannot_be_read_is_refused(shell: Shell, app: Dueline) -> None:
    app.stream("clicks", shards=2).append(1)
    assert shell.app("streams", "read", "nosuch").code == 4
    assert shell.app("streams", "read", "clicks", "--shard", "2").code == 4
    for since in ("soon", "2026-01-01T00:00", "2026-13-01T00:00Z", "17-abc"):
        assert shell.app("streams", "read", "clicks", "--since", since).code == 2, since
    assert shell.app("streams", "read", "clicks", "--follow", "--until", "1h").code == 2


def test_a_stream_is_followed_over_a_cut(shell: Shell, app: Dueline) -> None:
    clicks = app.stream("clicks", shards=1)
    clicks.append(0)
    follower = shell.spawn(
        "--store", "sqlite:///jobs.db", "streams", "read", "clicks", "-f", "-o", "ndjson"
    )
    try:
        assert follower.stdout is not None
        assert json.loads(follower.stdout.readline())["value"] == 0
        clicks.reshard(2)
        clicks.append(1)
        told = json.loads(follower.stdout.readline())
        assert told["value"] == 1
        assert told["shard"] > 0
        follower.send_signal(signal.SIGINT)
        follower.communicate(timeout=WAIT_S)
        assert follower.returncode == 130
    finally:
        follower.kill()
        follower.communicate()


# Who has come how far


def handled(app: Dueline, name: str) -> list[object]:
    """Have a member of `billing` handle all there is, and go."""
    consumer = member(app, name)
    consumer.balance()
    values: list[object] = []
    for shard in consumer.held:
        while (batch := consumer.poll(shard)) is not None:
            values += [event.value for event in batch.events]
            consumer.commit(batch)
    consumer.leave()
    return values


def test_groups_are_shown_with_members_places_and_lags(shell: Shell, app: Dueline) -> None:
    clicks = app.stream("clicks", shards=2)
    assert shell.app("streams", "groups", "nosuch").code == 4
    clicks.append_many([(number, str(number)) for number in range(6)])
    told = shell.app("streams", "groups", "clicks")
    assert (told.code, told.out) == (0, "stream  clicks\n")
    assert "No groups." in told.err
    consumer = member(app, "here:1:ab")
    consumer.balance()
    batch = consumer.poll(1)
    assert batch is not None
    consumer.commit(batch)
    data = shell.app("streams", "groups", "clicks", "-o", "json").data
    (group,), (there,), shards = data["groups"], data["members"], data["shards"]
    assert (group["group"], group["members"], group["parked"]) == ("billing", 1, 0)
    assert group["behind"] == 6 - len(batch.events)
    assert (there["member"], there["busy"]) == ("here:1:ab", None)
    assert [shard["holder"] for shard in shards] == ["here:1:ab"] * 2
    assert [shard["position"] for shard in shards] == [None, str(batch.position)]
    assert [shard["behind"] for shard in shards] == [6 - len(batch.events), 0]
    heads = shell.app("streams", "groups", "clicks").out
    assert "GROUP    MEMBERS  BEHIND" in heads
    assert "here:1:ab" in heads


def test_parked_events_are_listed_and_handled_again(shell: Shell, app: Dueline) -> None:
    # T14
    orders = app.stream("clicks", shards=1)
    consumer = member(app, "here:1:ab", park_after=1)
    consumer.balance()
    assert shell.app("streams", "parked", "clicks", "--group", "billing").err == (
        "No parked events.\n"
    )
    for value, key in (("bad", "7 é"), ("worse", None)):
        orders.append(value, key=key)
        batch = consumer.poll(0)
        assert batch is not None
        consumer.fail(batch)
    first, second = orders.read()
    group = ("clicks", "--group", "billing")
    data = shell.app("streams", "parked", *group, "-o", "json").data
    assert {(event["id"], event["key"], event["value"]) for event in data} == {
        (first.id, "7 é", "bad"), (second.id, None, "worse"),
    }  # fmt: skip
    assert "7 é" in shell.app("streams", "parked", *group).out
    for wrong in (["--key", "8"], ["--event", first.id]):
        answer = shell.app("streams", "unpark", *group, *wrong)
        assert answer.code == 4
        assert "has no parked events of the" in answer.why
    assert shell.app("streams", "unpark", *group).code == 2
    assert shell.app("streams", "unpark", "nosuch", "--group", "g", "--all").code == 4
    with pytest.raises(NotFound, match="no parked events of the key 8"):
        orders.unpark("billing", key="8")
    assert shell.app("streams", "unpark", *group, "--key", "7 é", "-o", "json").data["keys"] == 1
    assert shell.app("streams", "unpark", *group, "--all", "-o", "json").data["keys"] == 2
    again = []
    for _ in range(10):
        batch = consumer.poll(0)
        if batch is None:
            consumer.balance()
        else:
            again += [event.value for event in batch.events]
            consumer.commit(batch)
    assert sorted(again) == ["bad", "worse"]
    assert orders.parked("billing") == []


def test_a_group_goes_on_where_its_operator_says(shell: Shell, app: Dueline) -> None:
    clicks = app.stream("clicks", shards=2)
    clicks.append_many([(number, str(number)) for number in range(6)])
    assert sorted(map(str, handled(app, "first"))) == list("012345")
    assert handled(app, "second") == []
    seek = ("streams", "seek", "clicks", "--group", "billing", "--to")
    moved = shell.app(*seek, "oldest", "-o", "json").data
    assert [shard["shard"] for shard in moved] == [0, 1]
    assert sum(shard["behind"] for shard in moved) == 6
    assert sorted(map(str, handled(app, "third"))) == list("012345")
    assert shell.app(*seek, "1h").code == 0
    moved = shell.app(*seek, "newest", "-o", "json").data
    assert sum(shard["behind"] for shard in moved) == 0
    assert handled(app, "fourth") == []
    assert shell.app(*seek, "soon").code == 2
    assert shell.app(*seek, "2099-01-01T00:00:00Z").code == 2
    assert shell.app("streams", "seek", "clicks", "-g", "nosuch", "--to", "oldest").code == 4
    assert shell.app("streams", "seek", "nosuch", "-g", "billing", "--to", "oldest").code == 4


def test_a_group_is_not_moved_under_its_members(shell: Shell, app: Dueline) -> None:
    app.stream("clicks", shards=2).append(1)
    consumer = member(app, "here:1:ab")
    consumer.balance()
    answer = shell.app("streams", "seek", "clicks", "--group", "billing", "--to", "oldest")
    assert answer.code == 5
    assert "here:1:ab" in answer.why
    groups.leave(app.queues.engine.store, "clicks", "billing", "here:1:ab")  # its leases stay
    answer = shell.app("streams", "seek", "clicks", "--group", "billing", "--to", "oldest")
    assert answer.code == 5
    assert answer.why == "Shard 0 is held by here:1:ab."
