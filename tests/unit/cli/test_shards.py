"""`dueline shards`, `dueline queues set`."""

from dueline import Dueline
from dueline.coordination.leases import ELECTIONS, MONITOR, TTL_US_MIN, Leases
from dueline.core.ids import Ids
from tests.harness.shell import Shell


def test_a_queue_is_set_while_it_is_in_use_and_keeps_its_old_shards_in_view(shell: Shell) -> None:
    # H7
    shell.enqueue("tasks.add", "1")
    data = shell.app(
        "queues", "set", "default", "--shards", "7", "--lease", "2m", "-o", "json"
    ).data
    assert (data["shards"], data["shards_read"], data["lease_s"]) == (7, 7, 120)
    data = shell.app("queues", "set", "default", "--shards", "3", "-o", "json").data
    assert (data["shards"], data["shards_read"], data["lease_s"]) == (3, 7, 120)
    shown = shell.app("shards", "list", "-q", "default", "-o", "json").data
    assert [shard["takes_new"] for shard in shown] == [True] * 3 + [False] * 4
    assert [shard["shard"] for shard in shown if shard["lanes"]] == [0]


def test_tenants_are_given_weights(shell: Shell) -> None:
    # F8
    shell.enqueue("tasks.add", "1")
    words = ("queues", "set", "default", "-o", "json")
    data = shell.app(*words, "--weight", "b=2", "--weight", "a=b=3", "--weight", "c=1").data
    assert data["weights"] == ["a=b=3", "b=2"]
    assert shell.app(*words, "--weight", "b=1").data["weights"] == []
    for wrong in ("a", "a=", "a=x", "a=0", "a=1001", "a=-1"):
        assert shell.app(*words, "--weight", wrong).code == 2


def test_a_setting_that_is_wrong_or_missing_changes_nothing(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1")
    assert shell.app("queues", "set", "default").code == 2
    assert shell.app("queues", "set", "default", "--shards", "0").code == 2
    assert shell.app("queues", "set", "default", "--history", "some").code == 2
    assert shell.app("queues", "set", "nosuch", "--shards", "2").code == 4
    assert shell.app("queues", "show", "default", "-o", "json").data["shards"] == 1


def test_the_latest_shard_comes_first_and_idle_ones_are_left_out(shell: Shell) -> None:
    answer = shell.app("shards", "lag")
    assert (answer.out, answer.err) == ("", "No jobs are ready.\n")
    shell.enqueue("tasks.add", "1")
    shell.enqueue("tasks.sleep", "0", "--after", "1h")
    (shard,) = shell.app("shards", "lag", "-o", "json").data
    assert (shard["queue"], shard["shard"], shard["lanes"]) == ("default", 0, 1)
    assert shard["lag_s"] >= 0


def test_owners_are_told_with_their_epochs_and_whether_they_still_hold_it(shell: Shell) -> None:
    answer = shell.app("shards", "owners")
    assert (answer.out, answer.err) == ("", "No lease was ever held.\n")
    app = Dueline("sqlite:///jobs.db")
    queues = app.queues
    leases = Leases(
        queues.engine.store, ELECTIONS, "host:1:ab",
        ttl_us=100 * TTL_US_MIN, time=queues.engine.time, clock=app.clock, ids=Ids(),
    )  # fmt: skip
    assert leases.hold_or_take(MONITOR) == 1
    (owner,) = shell.app("shards", "owners", "-o", "json").data
    assert (owner["holder"], owner["epoch"], owner["is_held"]) == ("host:1:ab", 1, True)
    assert "monitor: host:1:ab, epoch 1" in shell.app("health").out
    leases.release([MONITOR])
    (owner,) = shell.app("shards", "owners", "-o", "json").data
    assert (owner["is_held"], owner["until"]) == (False, None)
    assert leases.hold_or_take(MONITOR) == 2
    data = shell.app("shards", "release", "monitor", "-o", "json").data
    assert (data["holder"], data["epoch"], data["is_held"]) == ("host:1:ab", 2, False)
    assert leases.renew() == [MONITOR]
    assert shell.app("shards", "release", "nosuch").code == 4
    app.close()
