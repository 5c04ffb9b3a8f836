"""What is said of a cluster whose nodes differ, without one."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest

from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.errors import ConfigError
from dueline.stores.cassandra.url import place_of
from tests.harness.clocks import HandClock

pytest.importorskip("cassandra", reason="the driver is not installed")

if TYPE_CHECKING:
    from dueline.stores.cassandra.session import CassandraSession

NOW_US = 1_800_000_000 * SECOND_US
_EPOCH_US = 12_219_292_800 * SECOND_US
NETWORK = {"class": "org.apache.cassandra.locator.NetworkTopologyStrategy", "east": "3"}


def timed(instant_us: int) -> UUID:
    """Make the id that a server's clock makes."""
    ticks = (instant_us + _EPOCH_US) * 10
    return UUID(fields=(ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 | 0x1000, 128, 0, 0))


class Cluster:
    """The answers of a session to a cluster of several nodes; None: a silent one."""

    place = place_of("cassandra://127.0.0.1/jobs", {})

    def __init__(
        self,
        nodes: Mapping[str, tuple[str, int] | None],
        settings: Sequence[Mapping[str, str]],
        replication: Mapping[str, str],
        *,
        clock: HandClock,
        delay_us: int = 0,
        tells_all: bool = True,
    ) -> None:
        self._nodes, self._settings, self._replication = nodes, settings, replication
        self._clock, self._delay_us, self._tells_all = clock, delay_us, tells_all

    def read(self, *_: object) -> list[tuple[str]]:
        return [("2",)]

    def ask(self, text: str) -> list[tuple[Any, ...]]:
        if "system_schema.keyspaces" in text:
            return [(self._replication,)]
        if not self._tells_all:
            raise ConfigError("It does not let worker in.")
        if "system_schema.tables" in text:
            unified = {"class": "org.apache.cassandra.db.compaction.UnifiedCompactionStrategy"}
            return [("jobs", unified, 864_000), ("lanes", {"class": "x.SizeTiered"}, 432_000)]
        if "writetime" in text:
            return [(self._clock.wall_us() - 3 * DAY_US,)]
        assert "repair_history" in text
        now = datetime.fromtimestamp(self._clock.wall_us() / SECOND_US, UTC).replace(tzinfo=None)
        return [
            (None, "STARTED"),
            (now - timedelta(hours=1), "FAILED"),
            (now - timedelta(hours=5), "SUCCESS"),
            (now - timedelta(hours=30), "SUCCESS"),
        ]

    def ask_each(self, text: str) -> Mapping[str, list[tuple[Any, ...]] | None]:
        if "settings" in text:
            return {str(n): [*settings.items()] for n, settings in enumerate(self._settings)}
        if "max_partition_size" in text:
            return {"a": [("jobs", 7), ("ids", 2)], "b": [("jobs", 12)]} if self._tells_all else {}
        if "tombstones_per_read" in text:
            return {"a": [("lanes", 124.0), ("jobs", 3.5)], "b": None} if self._tells_all else {}
        self._clock.advance(us=self._delay_us)
        return {
            host: told and [(told[0], timed(NOW_US + told[1]))]
            for host, told in self._nodes.items()
        }

    def centres(self) -> Mapping[str, int]:
        return {"west": 1, "east": 2}


def facts(
    nodes: Mapping[str, tuple[str, int] | None] | None = None,
    *,
    settings: Sequence[Mapping[str, str]] = (),
    replication: Mapping[str, str] | None = None,
    delay_us: int = 0,
    tells_all: bool = True,
) -> Mapping[str, str]:
    """Describe a cluster."""
    from dueline.stores.cassandra import diagnostics  # noqa: PLC0415  (needs the driver)

    clock = HandClock()
    cluster = Cluster(
        nodes or {"a": ("5.0.8", 0)},
        settings,
        replication or NETWORK,
        clock=clock,
        delay_us=delay_us,
        tells_all=tells_all,
    )
    return diagnostics.describe(cast("CassandraSession", cluster), clock)


def test_each_answer_is_told_once() -> None:
    told = facts(
        {"a": ("5.0.8", 0), "b": ("4.1.9", 0), "c": ("5.0.8", 0)},
        settings=[
            {"commitlog_sync": "batch", "paxos_variant": "v2"},
            {"commitlog_sync": "periodic", "paxos_variant": "v2"},
        ],
    )
    assert told["server"] == "4.1.9, 5.0.8"
    assert (told["paxos"], told["commit log"]) == ("v2", "batch, periodic")
    assert told["survives loss of power"].startswith("what the last sync of every replica missed")
    assert told["nodes"] == "east: 2, west: 1"
    assert "nodes that are silent" not in told


def test_what_no_node_says_is_unknown() -> None:
    told = facts(settings=[{}])
    assert (told["paxos"], told["commit log"]) == ("unknown", "unknown")


TABLES = {
    "compaction": "UnifiedCompactionStrategy",
    "deleted rows are kept": "5d",
    "largest partition": "12 MiB in jobs",
    "deleted rows a read (p99)": "124 in lanes",
    "keyspace is old": "3d",
    "repaired ago": "5h",
}


def test_of_tables_the_worst_is_told_and_the_last_repair_that_ended_well() -> None:
    told = facts(settings=[{}])
    assert {name: told.get(name) for name in TABLES} == TABLES


def test_what_a_user_may_not_read_is_left_out_and_that_is_told() -> None:
    told = facts(tells_all=False)
    assert not TABLES.keys() & told.keys()
    assert told["settings"] == "hidden"
    assert told["survives loss of power"] == "unknown"
    assert "paxos" not in told


def test_a_silent_node_is_named_and_the_others_are_told() -> None:
    told = facts({"a": ("5.0.8", 0), "b": None})
    assert (told["nodes that are silent"], told["server"]) == ("b", "5.0.8")


@pytest.mark.parametrize(
    ("ahead_us", "delay_us", "apart"),
    [(0, 0, "0ms"), (1_500_000, 0, "1s"), (-40_000_000, 0, "40s"), (700_000, 300_000, "400ms")],
)
def test_clocks_are_apart_by_what_delays_do_not_explain(
    ahead_us: int, delay_us: int, apart: str
) -> None:
    told = facts({"a": ("5.0.8", 0), "b": ("5.0.8", ahead_us)}, delay_us=delay_us)
    assert told["nodes' clocks apart"] == apart


@pytest.mark.parametrize(
    ("replication", "replicas", "lost"),
    [
        (NETWORK, "east: 3", "nothing is lost, and the queue goes on"),
        (NETWORK | {"west": "2"}, "east: 3, west: 2", "nothing is lost, and the queue stops"),
        (NETWORK | {"east": "5/1"}, "east: 5", "nothing is lost, and the queue goes on"),
        (
            {"class": "org.apache.cassandra.locator.SimpleStrategy", "replication_factor": "1"},
            "anywhere: 1",
            "no: one replica",
        ),
    ],
)
def test_replicas_say_what_a_lost_machine_takes_along(
    replication: Mapping[str, str], replicas: str, lost: str
) -> None:
    told = facts(replication=replication)
    assert told["replicas"] == replicas
    assert told["replication"] == replication["class"].rpartition(".")[2]
    assert told["survives loss of the machine"].startswith(lost)


def test_a_cluster_whose_tokens_are_others_is_refused() -> None:
    from dueline.stores.cassandra.connection import _refuse_partitioner  # noqa: PLC0415

    place = place_of("cassandra://127.0.0.1/jobs", {})
    _refuse_partitioner(place, "org.apache.cassandra.dht.Murmur3Partitioner")
    with pytest.raises(ConfigError, match="uses RandomPartitioner") as refusal:
        _refuse_partitioner(place, "org.apache.cassandra.dht.RandomPartitioner")
    assert refusal.value.hint == "Use Murmur3Partitioner."


@pytest.mark.parametrize(("timeout", "connect_s"), [("100ms", 5), ("10s", 5), ("60s", 30)])
def test_connecting_may_take_half_as_long_as_a_request_and_five_seconds(
    timeout: str, connect_s: float
) -> None:
    from dueline.stores.cassandra import connection  # noqa: PLC0415  (needs the driver)

    place = place_of("cassandra://127.0.0.1/jobs", {"timeout": timeout})
    cluster = connection._cluster(place)
    try:
        limits_s = (cluster.connect_timeout, cluster.control_connection_timeout)
    finally:
        cluster.shutdown()
    assert limits_s == (connect_s, connect_s)


@pytest.mark.parametrize(
    ("off_us", "middle_off_us"),
    [([0], 0), ([0, -3], 0), ([0, 0, -3], 0), ([3, 0, 0], 0), ([-3, -2, 0, 1], 0)],
)
def test_the_middle_clock_counts_whichever_node_is_off(
    off_us: Sequence[int], middle_off_us: int
) -> None:
    from dueline.stores.cassandra.diagnostics import middle_us  # noqa: PLC0415  (needs the driver)

    readings = [(NOW_US + off * SECOND_US, 5) for off in off_us]
    assert middle_us(readings, 5) == NOW_US + middle_off_us * SECOND_US


def test_answers_that_came_earlier_are_carried_on() -> None:
    from dueline.stores.cassandra.diagnostics import middle_us  # noqa: PLC0415  (needs the driver)

    assert middle_us([(NOW_US, 100)], 300) == NOW_US + 100


@pytest.mark.parametrize(
    ("changed", "fact"),
    [
        ({}, "UnifiedCompactionStrategy"),
        ({"ids": "LeveledCompactionStrategy"}, "UnifiedCompactionStrategy"),
        ({"ids": "TimeWindowCompactionStrategy"}, "TimeWindowCompactionStrategy in ids"),
        (
            {"ids": "TimeWindowCompactionStrategy", "records": "TimeWindowCompactionStrategy"},
            "TimeWindowCompactionStrategy in ids, records",
        ),
        ({"stream_rows": "SizeTieredCompactionStrategy"},
         "SizeTieredCompactionStrategy in stream_rows"),
    ],
)  # fmt: skip
def test_the_compaction_of_every_table_is_compared_with_what_it_needs(
    changed: dict[str, str], fact: str
) -> None:
    from dueline.stores.cassandra.diagnostics import compaction_of  # noqa: PLC0415  (the driver)

    purging = dict.fromkeys(("jobs", "stream_rows"), "UnifiedCompactionStrategy")
    others = dict.fromkeys(("ids", "records"), "SizeTieredCompactionStrategy")
    assert compaction_of({**purging, **others, **changed}) == fact
