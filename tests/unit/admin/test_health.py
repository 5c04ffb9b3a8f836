"""What is made of the facts that a store states (H15, H17)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from dueline.admin.health import PROBES, examine, is_ready, is_writable
from dueline.coordination import notes
from dueline.coordination.worker_registry import present
from dueline.core.check import Check
from dueline.core.clock import SECOND_US, SystemClock
from dueline.core.codec import encode
from dueline.core.lane import Pointer
from dueline.core.store import LanePage, Record, Write
from dueline.foresight import alert_monitor
from dueline.foresight.alert_engine import Note
from dueline.foresight.alerts import Alert, Condition
from dueline.jobs.shard_status import LATE_US, neglected
from dueline.limits import semaphore
from dueline.schedules import scheduler
from dueline.schedules.schedule import Template, Timing
from dueline.stores.memory.store import MemoryStore
from tests.harness.clocks import HandClock
from tests.harness.queues import queues_on
from tests.harness.stream_stage import Stage
from tests.harness.world import World, world_on

SOUND = {
    "server": "5.0.9",
    "server needed": "4.1",
    "stream guard": "on",
    "stray answers": "0 dropped, 0 connections closed, in this process",
    "nodes' clocks apart": "3ms",
    "replication": "NetworkTopologyStrategy",
    "replicas": "east: 3",
    "consistency": "QUORUM",
    "paxos": "v2",
    "paxos state": "gc_grace",
    "commit log": "batch",
    "compaction": "UnifiedCompactionStrategy",
    "deleted rows are kept": "10d",
    "largest partition": "3 MiB in jobs",
    "deleted rows a read (p99)": "124 in lanes",
    "keyspace is old": "400d",
    "repaired ago": "5d",
}


class Telling(MemoryStore):
    """A store that states the facts it is given."""

    def __init__(self, facts: Mapping[str, str]) -> None:
        super().__init__(SystemClock())
        self._facts = facts

    def describe(self) -> Mapping[str, str]:
        return self._facts


def checks(**facts: str) -> dict[str, Check]:
    """Examine a sound store but for some facts; `_` stands for a space in their names."""
    told = SOUND | {name.replace("_", " "): text for name, text in facts.items()}
    queues = queues_on(Telling(told), SystemClock())
    return {check.name: check for check in examine(queues.engine).checks}


@pytest.mark.parametrize(
    ("server", "verdict"), [("5.0.8", "bad"), ("4.1.10", "bad"), ("5.0.9", "good")]
)
def test_a_server_that_mixes_answers_up_needs_the_guard(server: str, verdict: str) -> None:
    check = checks(server=server, stream_guard="off")["server"]
    assert check.verdict == verdict
    assert verdict == "good" or "dueline cannot drop such answers" in check.finding


@pytest.mark.parametrize("told", ["3 dropped, 0", "0 dropped, 1"])
def test_answers_that_were_dropped_are_told(told: str) -> None:
    check = checks(stray_answers=f"{told} connections closed, in this process")["stray answers"]
    assert check.verdict == "warning"
    assert check.finding.startswith(told)
    assert "5.0.9" in check.advice


def test_a_sound_cluster_is_good_all_over() -> None:
    by_name = checks()
    assert {check.verdict for check in by_name.values()} == {"good"}
    assert {"server", "nodes' clocks", "replication", "replicas", "paxos"} < by_name.keys()


def test_what_a_store_does_not_state_is_not_judged() -> None:
    queues = queues_on(Telling({}), SystemClock())
    assert {check.name for check in examine(queues.engine).checks} == {
        "clock of this machine",
        "workers",
        "monitor",
    }


def test_where_workers_run_and_none_is_elected_the_monitor_is_missed(tmp_path: Path) -> None:
    world = world_on("memory", tmp_path)
    world.live()
    assert judged_of(world, "monitor") == ["good"]
    world.clock.advance(61)
    assert judged_of(world, "monitor") == ["good"]  # nor does one run any more
    world.live(started_us=world.now_us - 61 * SECOND_US)
    assert judged_of(world, "monitor") == ["warning"]


def test_schedules_that_nobody_advances_are_reported(tmp_path: Path) -> None:
    world = world_on("memory", tmp_path)
    timing = Timing(every_us=60 * SECOND_US, overlap="skip")
    scheduler.put(world.queues, "minutely", Template("t", "q", 0, b"[]"), timing)
    assert judged_of(world, "schedules") == ["warning"]  # no worker is there
    world.live()
    assert judged_of(world, "schedules") == []
    assert all(
        check.verdict == "good" for check in is_ready(world.queues.engine, max_age_us=300_000_000)
    )
    world.clock.advance(500)
    world.live()
    (check,) = [check for check in examine(world.queues.engine).checks if check.name == "schedules"]
    assert check.finding == (
        "no worker has stored the job of minutely that was due at 2026-01-01T00:02:00Z; "
        "schedules that are overdue: 1"
    )
    bad = [
        check
        for check in is_ready(world.queues.engine, max_age_us=300_000_000)
        if check.verdict == "bad"
    ]
    assert "schedules" in {check.name for check in bad}
    scheduler.pause(world.queues, "minutely")
    assert judged_of(world, "schedules") == []


def judged_of(world: World, name: str) -> list[str]:
    return [check.verdict for check in examine(world.queues.engine).checks if check.name == name]


@pytest.mark.parametrize(
    ("fact", "told", "name", "verdict", "finding"),
    [
        ("server", "5.0.10", "server", "good", "5.0.10"),
        ("server", "5.0.8", "server", "warning", "may give one request the answer to another"),
        ("server", "4.1.10", "server", "warning", "dueline drops such answers"),
        ("server", "5.0.8, 5.0.9", "server", "warning", "5.0.8, 5.0.9: may give one request"),
        ("server", "4.0.17, 5.0.8", "server", "bad", "4.0.17"),
        ("server", "3.11.19", "server", "bad", "3.11.19"),
        ("server", "5.0.9, 5.1.0", "server", "warning", "5.0.9, 5.1.0"),
        ("server", "10.0", "server", "good", "10.0"),
        ("nodes_that_are_silent", "10.0.0.3", "nodes", "warning", "no answer from 10.0.0.3"),
        ("nodes'_clocks_apart", "249ms", "nodes' clocks", "good", "in step"),
        ("nodes'_clocks_apart", "250ms", "nodes' clocks", "warning", "250ms apart"),
        ("nodes'_clocks_apart", "5s", "nodes' clocks", "bad", "5s apart"),
        ("nodes'_clocks_apart", "30s", "nodes' clocks", "bad", "30s apart"),
        ("nodes'_clocks_apart", "1m5s", "nodes' clocks", "bad", "1m5s apart"),
        ("replication", "SimpleStrategy", "replication", "warning", "blind to data centres"),
        ("replicas", "east: 1", "replicas", "warning", "may lose jobs"),
        ("replicas", "east: 3, west: 1", "replicas", "warning", "may lose jobs"),
        ("replicas", "east: 2", "replicas", "warning", "loss of one node stops the queue"),
        ("replicas", "east: 3, west: 3", "replicas", "good", "east: 3, west: 3"),
        ("paxos", "v1", "paxos", "warning", "twice the round trips"),
        ("paxos", "v1, v2", "paxos", "warning", "twice the round trips"),
        ("paxos", "unknown", "paxos", "warning", "unknown"),
        ("commit_log", "group", "commit log", "good", "group"),
        ("commit_log", "periodic", "commit log", "good", "only a loss of all power at once"),
        ("commit_log", "unknown", "commit log", "warning", "unknown"),
        ("settings", "hidden", "settings", "warning", "may not read them"),
        ("paxos_state", "legacy", "paxos state", "warning", "expires by its time to live"),
        ("paxos_state", "gc_grace, legacy", "paxos state", "warning", "legacy"),
        ("compaction", "LeveledCompactionStrategy", "compaction", "good", "Leveled"),
        ("compaction", "SizeTieredCompactionStrategy", "compaction", "warning", "stay long"),
        ("compaction", "TimeWindowCompactionStrategy", "compaction", "bad", "never go"),
        ("compaction", "TimeWindowCompactionStrategy in ids", "compaction", "bad", "in ids: rows"),
        ("deleted_rows_are_kept", "1d", "deleted rows", "bad", "would run again"),
        ("deleted_rows_are_kept", "2d", "repair", "warning", "5d ago, and deleted rows"),
        ("largest_partition", "100 MiB in jobs", "largest partition", "good", "100 MiB"),
        ("largest_partition", "101 MiB in jobs", "largest partition", "warning", "101 MiB"),
        ("deleted_rows_a_read_(p99)", "10001 in jobs", "deleted rows a read", "warning", "10001"),
        ("autovacuum", "on", "autovacuum", "good", "on"),
        ("autovacuum", "off", "autovacuum", "bad", "every claim gets slower"),
        ("connections", "79 of 100", "connections", "good", "79 of 100"),
        ("connections", "80 of 100", "connections", "warning", "80 of 100 are in use"),
        ("read-only", "the server is a replica", "server", "bad", "nothing can be enqueued"),
        ("missing_rights", "INSERT, UPDATE, DELETE", "rights", "good", "may only read"),
        ("missing_rights", "DELETE", "rights", "bad", "DELETE is missing"),
        ("dead_rows", "200001 beside 300000, in 9 MiB", "dead rows", "good", "200001"),
        ("dead_rows", "200001 beside 30, in 9 MiB", "dead rows", "warning", "does not keep up"),
        ("oldest_transaction", "1m (process 7, a, b)", "oldest transaction", "good", "1m"),
        ("oldest_transaction", "2m (process 7, a, b)", "oldest transaction", "warning", "dead"),
        (
            "oldest_transaction",
            "11s (process 7, a, b, holds watermarks)",
            "oldest transaction",
            "warning",
            "readers of streams wait",
        ),
        ("replication_lag", "a (async): 10s behind", "replication lag", "good", "a (async)"),
        (
            "replication_lag",
            "a (sync): 0ms behind, b (async): 11s behind",
            "replication lag",
            "warning",
            "11s behind",
        ),
        ("repaired_ago", "9d", "repair", "good", "9d ago"),
        ("repaired_ago", "10d", "repair", "warning", "10d ago, and deleted rows"),
    ],
)
def test_a_fact_is_judged(fact: str, told: str, name: str, verdict: str, finding: str) -> None:
    check = checks(**{fact: told})[name]
    assert check.verdict == verdict
    assert finding in check.finding
    assert bool(check.advice) == (verdict != "good")


@pytest.mark.parametrize(
    ("age", "replicas", "verdict", "finding"),
    [
        ("9d", "east: 3", "good", "not yet; needed within 10d"),
        ("10d", "east: 3", "warning", "never, and deleted rows are known for 10d"),
        ("400d", "east: 1", "good", "nothing to repair"),
    ],
)
def test_a_keyspace_that_was_never_repaired_is_told_in_time(
    age: str, replicas: str, verdict: str, finding: str
) -> None:
    told = {name: text for name, text in SOUND.items() if name != "repaired ago"}
    told |= {"keyspace is old": age, "replicas": replicas}
    queues = queues_on(Telling(told), SystemClock())
    (check,) = [check for check in examine(queues.engine).checks if check.name == "repair"]
    assert check.verdict == verdict
    assert finding in check.finding


@pytest.mark.parametrize("replicas", ["east: 1", "east: 2"])
@pytest.mark.parametrize("mode", ["periodic", "batch, periodic"])
def test_a_late_commit_log_needs_three_replicas(replicas: str, mode: str) -> None:
    check = checks(replicas=replicas, commit_log=mode)["commit log"]
    assert check.verdict == "warning"
    assert "loses the last jobs" in check.finding
    assert "commitlog_sync: batch" in check.advice


def test_paxos_of_the_first_kind_is_told_the_setting() -> None:
    assert "`paxos_variant: v2`" in checks(paxos="v1")["paxos"].advice


@pytest.mark.parametrize(
    ("replicas", "verdict"), [("east: 3", "good"), ("east: 3, west: 3", "warning")]
)
def test_two_data_centres_must_not_decide_each_for_itself(replicas: str, verdict: str) -> None:
    check = checks(replicas=replicas, consistency="LOCAL_QUORUM")["consistency"]
    assert check.verdict == verdict


def test_a_job_that_waits_too_long_though_it_is_served_is_told(tmp_path: Path) -> None:
    world = world_on("memory", tmp_path)
    world.put()
    world.clock.advance(100)
    world.live()
    assert [
        check.verdict for check in is_ready(world.queues.engine, max_age_us=101 * SECOND_US)
    ] == ["good"]
    (check,) = is_ready(world.queues.engine, max_age_us=99 * SECOND_US)
    assert (check.name, check.verdict) == ("queue q", "bad")
    assert check.finding == "the oldest ready job waits for 1m40s"


class Counting(MemoryStore):
    """A store that counts the records that it returns, and takes a while to list lanes."""

    returned = 0
    lists_for_s = 0.0

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.clock = clock

    def read(self, partition: str, *, after: str | None, limit: int) -> Sequence[Record]:
        records = super().read(partition, after=after, limit=limit)
        self.returned += len(records)
        return records

    def lanes(
        self, queue: str, shard: int, *, until_bucket: int, after: Pointer | None, limit: int
    ) -> LanePage:
        self.clock.advance(self.lists_for_s)
        return super().lanes(queue, shard, until_bucket=until_bucket, after=after, limit=limit)


@pytest.mark.long
def test_a_paused_queue_whose_jobs_wait_too_long_is_told(tmp_path: Path) -> None:
    world = world_on("memory", tmp_path)
    world.put()
    world.queues.engine.catalog.configure("q", is_paused=True)
    world.clock.advance(100)
    world.live()
    (good,) = is_ready(world.queues.engine, max_age_us=101 * SECOND_US)
    assert good.verdict == "good"
    (check,) = is_ready(world.queues.engine, max_age_us=99 * SECOND_US)
    assert (check.verdict, check.advice) == ("bad", "Run `dueline queues resume q`.")
    assert check.finding == "it is paused, and the oldest ready job waits for 1m40s"


@pytest.mark.parametrize(("kind", "is_told"), [("failures", True), ("shard", False)])
def test_a_raised_alert_is_told_unless_a_check_finds_the_same(
    tmp_path: Path, kind: str, *, is_told: bool
) -> None:
    world = world_on("memory", tmp_path)
    world.live()
    engine = world.queues.engine
    engine.catalog.configure("q", shards=1)
    condition = Condition(kind, "q", "t", "80% of t failed.", "dueline jobs list")  # type: ignore[arg-type]
    note = encode(Note((Alert(condition, engine.time.latest_us(), engine.time.latest_us()),)))
    put = notes.put(alert_monitor.KIND, "q", note, engine.ids.token())
    engine.store.commit(notes.PARTITION, [put])
    checks = [check for check in is_ready(engine, max_age_us=LATE_US) if "80%" in check.finding]
    checks += [check for check in examine(engine).checks if "80%" in check.finding]
    assert [check.verdict for check in checks] == (["bad", "warning"] if is_told else [])


@pytest.mark.slow
def test_many_queues_are_checked_in_a_bounded_time_and_few_are_named() -> None:
    clock = HandClock()
    store = Counting(clock)
    world = World(store, clock)
    for number in range(200):
        world.put(queue=f"q{number:03}")
    clock.advance(10)  # so that settings are read again
    store.returned = 0
    checks = is_ready(world.queues.engine, max_age_us=LATE_US)
    assert store.returned < 10 * 200
    assert [check.name for check in checks] == [
        *(f"queue q{number:03}" for number in range(20)),
        "queues",
    ]
    assert (checks[-1].verdict, checks[-1].finding) == ("bad", "and 180 more queues like these")
    assert [
        check.finding for check in examine(world.queues.engine).checks if check.name == "queues"
    ] == ["and 180 more queues like these"]

    store.lists_for_s = 1
    named = set[str]()
    while len(named) < 200:  # each check begins with other queues
        *late, last = is_ready(world.queues.engine, max_age_us=LATE_US, within_us=10 * SECOND_US)
        assert last.verdict == "warning"
        checked = int(last.finding.split()[0])
        assert last.finding == f"{checked} of 200 were checked within 10s"
        assert 1 < len(late) == checked < 20
        named |= {check.name for check in late}


@pytest.mark.parametrize("kind", ["memory", "steps", "sqlite"])
def test_nobody_is_late_with_what_waits_for_permits(tmp_path: Path, kind: str) -> None:
    world = world_on(kind, tmp_path)

    def is_late() -> bool:
        queue = [check.verdict for check in is_ready(world.queues.engine, max_age_us=LATE_US)]
        shards = [*neglected(world.queues.engine, ["q"], present(world.store))]
        assert (queue == ["bad"]) == bool(shards)
        return bool(shards)

    world.put(limits=["host:a"])
    world.put(limits=["host:b", "warehouse"])
    world.clock.advance(us=LATE_US + 1)
    world.live()
    assert is_late()
    world.hold("host:b")
    assert is_late()  # host:a is free
    semaphore.define(world.store, "host", 2, ids=world.queues.engine.ids)
    world.hold("host:a", "w1", 2)
    assert is_late()  # now host:b is
    world.hold("warehouse")
    assert not is_late()
    world.hold("host:a", "w1", 1)
    assert is_late()
    world.wait_for("host:a", "w2")  # it comes in a moment
    assert not is_late()
    semaphore.define(world.store, "host", 0, ids=world.queues.engine.ids)
    world.clock.advance(60)  # all permits have lapsed
    world.live()
    assert not is_late()
    semaphore.define(world.store, "host", 1, ids=world.queues.engine.ids)
    assert is_late()


@pytest.mark.parametrize("kind", ["memory", "steps", "sqlite"])
def test_a_shard_that_is_late_though_its_queue_is_served_is_neglected(
    tmp_path: Path, kind: str
) -> None:
    world = world_on(kind, tmp_path)
    world.put(queue="unserved")
    world.put(queue="paused")
    world.queues.engine.catalog.configure("paused", is_paused=True)
    world.queues.engine.catalog.configure("q", shards=2)
    late = world.row(world.put())
    world.clock.advance(us=LATE_US)
    world.live(queues=("q", "paused"))
    assert [check for check in examine(world.queues.engine).checks if "shard" in check.name] == []
    world.clock.advance(2)
    (check,) = (check for check in examine(world.queues.engine).checks if "shard" in check.name)
    assert (check.name, check.verdict) == (f"queue q, shard {late.lane.shard}", "warning")
    assert check.finding == "its oldest ready job waits for 5m2s"
    world.store.close()


@pytest.mark.parametrize("kind", ["memory", "steps", "sqlite"])
def test_a_probe_leaves_nothing_behind(tmp_path: Path, kind: str) -> None:
    world = world_on(kind, tmp_path)
    assert is_writable(world.queues.engine).verdict == "good"
    assert list(world.store.read(PROBES, after=None, limit=10)) == []
    world.store.close()


def test_a_store_that_forgets_what_is_written_is_told() -> None:
    class Forgetful(MemoryStore):
        def commit(self, partition: str, writes: Sequence[Write]) -> bool:  # noqa: ARG002
            return True

    queues = queues_on(Forgetful(SystemClock()), SystemClock())
    assert is_writable(queues.engine).verdict == "bad"


def test_a_consumer_that_is_stuck_is_told_though_it_beats(tmp_path: Path) -> None:
    # R8
    world = world_on("memory", tmp_path)
    stage = Stage(world.store, world.clock)
    orders = stage.stream(1)
    orders.append(1)
    member = stage.member("m", shards=1)
    member.balance()
    assert member.begin(0)
    world.clock.advance(50)
    member.balance()
    assert [
        check.verdict for check in is_ready(stage.queues.engine, max_age_us=60 * SECOND_US)
    ] == ["good"]
    (check,) = is_ready(stage.queues.engine, max_age_us=40 * SECOND_US)
    assert (check.name, check.verdict) == ("group orders/billing", "bad")
    assert check.finding == "m has been handling one batch for 50s"


def test_events_that_nobody_reads_are_told(tmp_path: Path) -> None:
    # R8
    world = world_on("memory", tmp_path)
    stage = Stage(world.store, world.clock)
    orders = stage.stream(1)
    member = stage.member("m", shards=1)
    member.balance()
    member.leave()
    orders.append(1)
    world.clock.advance(400)
    (check,) = is_ready(stage.queues.engine, max_age_us=300 * SECOND_US)
    assert check.finding == "its oldest event waits for 6m40s, and it has no live member"
    told = {check.name: check.verdict for check in examine(stage.queues.engine).checks}
    assert told["group orders/billing"] == "warning"
    orders.forget_group("billing")
    assert [
        check.verdict for check in is_ready(stage.queues.engine, max_age_us=300 * SECOND_US)
    ] == ["good"]
