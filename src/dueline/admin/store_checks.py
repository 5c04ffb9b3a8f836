"""Checks of the facts that a store describes."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from dueline.core.check import Check, Verdict
from dueline.core.clock import BEHIND_US, DAY_US, SECOND_US
from dueline.core.durations import parse_span

APART_US_MAX: Final = SECOND_US // 4
"""Clocks of nodes that use NTP differ by far less."""

SKEW_US_MAX: Final = 30 * SECOND_US
"""Maximum difference between the clock of a machine and the store's."""

PARTITION_MIB_MAX: Final = 100
"""Cassandra's compaction and repair suffer from larger partitions."""

TOMBSTONES_MAX: Final = 10_000
"""Reading over this many deleted rows takes some 30 ms; a server fails a read at 100,000."""

TRANSACTION_US_MAX: Final = 60 * SECOND_US
"""A transaction that is open for longer keeps dead rows, and jobs may wait for it."""

HOLDING_US_MAX: Final = 10 * SECOND_US
"""A transaction that holds watermarks for longer makes readers of streams wait."""

DEAD_ROWS_MAX: Final = 200_000
"""PostgreSQL's autovacuum starts at a tenth of this."""

CONNECTIONS_SHARE: Final = 0.8
"""Share of a server's connections in use above which new processes may be refused."""

MEMORY_PERCENT_MAX: Final = 80
"""Redis refuses new jobs at 100 % of `maxmemory`."""

LAG_US_MAX: Final = 10 * SECOND_US
"""A replica that is further behind loses as much at a failover, if it is asynchronous."""

STREAMS_SAFE: Final = (5, 0, 9)
"""The first release of Cassandra that answers every request on its own stream."""


def judged(store: Mapping[str, str]) -> Iterator[Check]:
    """Yield a check for each fact of a store that can be judged."""
    for fact, judge in _JUDGES.items():
        if fact in store:
            yield judge(store[fact], store)


def _schema(version: str, _: Mapping[str, str]) -> Check:
    return Check("schema", "good", f"version {version}")


def _integrity(finding: str, _: Mapping[str, str]) -> Check:
    if finding == "ok":
        return Check("integrity", "good", "no damage found")
    return Check("integrity", "bad", finding, "Stop all workers and restore a backup.")


def _damaged(damage: str, _: Mapping[str, str]) -> Check:
    advice = (
        "They are in the table dueline_damaged, each as a statement: correct and run it, or not, "
        "and delete the row there (docs/operations/damage.md)."
    )
    return Check("damaged rows", "bad", damage, advice)


def _server(versions: str, store: Mapping[str, str]) -> Check:
    """Check the versions of all nodes: the session sees only the first one that it asks."""
    needed = store.get("server needed", "0")
    several = versions.split(", ")
    if any(_version(release) < _version(needed) for release in several):
        return Check("server", "bad", versions, f"Bring every node to {needed} or later.")
    if "stream guard" in store and any(_version(release) < STREAMS_SAFE for release in several):
        return _misroutes(versions, is_guarded=store["stream guard"] == "on")
    if len(several) > 1:
        return Check("server", "warning", versions, "Finish the upgrade of the servers.")
    return Check("server", "good", versions)


def _misroutes(versions: str, *, is_guarded: bool) -> Check:
    """Check servers that may answer on the stream of another request."""
    least = ".".join(map(str, STREAMS_SAFE))
    finding = f"{versions}: may give one request the answer to another (CASSANDRA-21508)"
    advice = f"Upgrade every node to {least} or later."
    if is_guarded:
        return Check("server", "warning", f"{finding}; dueline drops such answers", advice)
    finding += ", and dueline cannot drop such answers with the installed cassandra-driver"
    return Check("server", "bad", finding, f"{advice} Until then, use cassandra-driver 3.30.1.")


def _strays(fact: str, _: Mapping[str, str]) -> Check:
    """Check the answers that no request of this process waited for."""
    if not any(map(int, re.findall(r"\d+", fact))):
        return Check("stray answers", "good", fact)
    return Check(
        "stray answers",
        "warning",
        f"{fact}: the server answered requests on streams that are not theirs",
        "Upgrade every node to 5.0.9 or later, and find out why requests wait in its queue.",
    )


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:3]))


def _silent(hosts: str, _: Mapping[str, str]) -> Check:
    return Check("nodes", "warning", f"no answer from {hosts}", "Start them, or see why.")


def _apart(apart: str, _: Mapping[str, str]) -> Check:
    apart_us = parse_span(apart)
    if apart_us < APART_US_MAX:
        return Check("nodes' clocks", "good", "in step")
    verdict: Verdict = "bad" if apart_us >= BEHIND_US else "warning"
    return Check("nodes' clocks", verdict, f"{apart} apart", "Have the nodes keep time (NTP).")


def _replication(strategy: str, _: Mapping[str, str]) -> Check:
    if strategy == "SimpleStrategy":
        advice = "Alter the keyspace to NetworkTopologyStrategy, with a number for each centre."
        return Check("replication", "warning", f"{strategy}: blind to data centres", advice)
    return Check("replication", "good", strategy)


def _replicas(replicas: str, _: Mapping[str, str]) -> Check:
    least = _least(replicas)
    advice = "Alter the keyspace to 3 replicas, on as many nodes, then `nodetool repair --full`."
    if least <= 1:
        finding = f"{replicas}; loss of one node stops the queue, and may lose jobs"
        return Check("replicas", "warning", finding, advice)
    if least == 2:  # noqa: PLR2004  (a majority of two is both)
        finding = f"{replicas}; loss of one node stops the queue"
        return Check("replicas", "warning", finding, advice)
    return Check("replicas", "good", replicas)


def _least(replicas: str) -> int:
    return min(int(centre.rpartition(": ")[2]) for centre in replicas.split(", "))


def _consistency(level: str, store: Mapping[str, str]) -> Check:
    """Check the consistency level: two data centres that decide alone may both claim a job."""
    if level.startswith("LOCAL") and ", " in store.get("replicas", ""):
        return Check(
            "consistency",
            "warning",
            f"{level}, and replicas in several data centres",
            "Let all clients name one dc=, or use consistency=QUORUM.",
        )
    return Check("consistency", "good", level)


def _paxos(variant: str, _: Mapping[str, str]) -> Check:
    if variant == "v2":
        return Check("paxos", "good", variant)
    advice = "Set `paxos_variant: v2` on every node, and restart them one by one."
    return Check("paxos", "warning", f"{variant}: claims take twice the round trips", advice)


def _commit_log(mode: str, store: Mapping[str, str]) -> Check:
    """Check when a write reaches the disk: of three replicas, two have it if one is lost."""
    if mode in ("batch", "group"):
        return Check("commit log", "good", mode)
    if mode == "periodic" and _least(store.get("replicas", ": 1")) > 2:  # noqa: PLR2004
        return Check("commit log", "good", "periodic; only a loss of all power at once loses jobs")
    finding = f"{mode}: a node that is killed loses the last jobs"
    advice = "Set `commitlog_sync: batch` on every node, or have 3 replicas."
    return Check("commit log", "warning", finding, advice)


def _paxos_state(purging: str, _: Mapping[str, str]) -> Check:
    if purging in ("gc_grace", "repaired"):
        return Check("paxos state", "good", f"purged: {purging}")
    finding = f"{purging}: the state of conditional writes only expires by its time to live"
    advice = (
        "Set `paxos_state_purging: gc_grace` (or `repaired`, with Paxos repairs) on every node."
    )
    return Check("paxos state", "warning", finding, advice)


def _settings(_fact: str, _: Mapping[str, str]) -> Check:
    finding = "this user may not read them: Paxos, commit log and sizes were not checked"
    advice = "For an operator: GRANT SELECT ON KEYSPACE system_views TO the role, and of "
    return Check("settings", "warning", finding, f"{advice}system_distributed.")


def _compaction(strategy: str, _: Mapping[str, str]) -> Check:
    """Check how deleted rows are purged: rows are deleted one by one, in any order."""
    if strategy in ("UnifiedCompactionStrategy", "LeveledCompactionStrategy"):
        return Check("compaction", "good", strategy)
    if "TimeWindow" in strategy or "DateTiered" in strategy:
        finding = f"{strategy}: rows of old windows are deleted one by one, and never go"
        return Check("compaction", "bad", finding, _COMPACT)
    return Check("compaction", "warning", f"{strategy}: deleted rows stay long", _COMPACT)


def _kept(span: str, _: Mapping[str, str]) -> Check:
    """Check how long deletes are known: an insert may be repeated for a day."""
    if parse_span(span) > DAY_US:
        return Check("deleted rows", "good", f"known for {span}")
    finding = f"forgotten after {span}: a job that is inserted again a day later would run again"
    return Check("deleted rows", "bad", finding, "Have all tables with gc_grace_seconds = 864000.")


def _largest(fact: str, _: Mapping[str, str]) -> Check:
    if int(fact.partition(" ")[0]) <= PARTITION_MIB_MAX:
        return Check("largest partition", "good", fact)
    advice = "Raise the shards of the busiest queue (`dueline queues set NAME --shards N`)."
    return Check("largest partition", "warning", fact, advice)


def _crossed(fact: str, _: Mapping[str, str]) -> Check:
    if int(fact.partition(" ")[0]) <= TOMBSTONES_MAX:
        return Check("deleted rows a read", "good", f"{fact} (p99)")
    advice = "Raise the shards of the busiest queue, so that its lanes hold less; see compaction."
    return Check("deleted rows a read", "warning", f"{fact} (p99)", advice)


def _repaired(age: str, store: Mapping[str, str]) -> Check:
    """Check the last repair: without one while deletes are known, deleted rows may come back."""
    kept = store.get("deleted rows are kept", "10d")
    ago = store.get("repaired ago")
    if _least(store.get("replicas", ": 1")) <= 1:
        return Check("repair", "good", "there is one replica: nothing to repair")
    if parse_span(ago or age) < parse_span(kept):
        return Check("repair", "good", f"{ago} ago" if ago else f"not yet; needed within {kept}")
    finding = f"{ago} ago" if ago else "never"
    finding += f", and deleted rows are known for {kept}: some may come back"
    advice = "Repair the keyspace on every node within that time: `nodetool repair -pr KEYSPACE`."
    return Check("repair", "warning", finding, advice)


def _autovacuum(setting: str, _: Mapping[str, str]) -> Check:
    if setting == "on":
        return Check("autovacuum", "good", setting)
    finding = f"{setting}: deleted jobs stay in the tables, and every claim gets slower"
    return Check("autovacuum", "bad", finding, "Set `autovacuum = on`, and reload the server.")


def _connections(fact: str, _: Mapping[str, str]) -> Check:
    used, most = map(int, fact.split(" of "))
    if used < most * CONNECTIONS_SHARE:
        return Check("connections", "good", fact)
    advice = "Raise max_connections, or put a pooler such as PgBouncer before the server."
    return Check("connections", "warning", f"{fact} are in use", advice)


def _read_only(fact: str, _: Mapping[str, str]) -> Check:
    advice = "Connect to the primary, with `target_session_attrs=read-write` in the URL."
    return Check("server", "bad", f"{fact}: nothing can be enqueued or run", advice)


def _rights(missing: str, store: Mapping[str, str]) -> Check:
    """Check the rights of this user: one that may only read is no fault."""
    if missing == "INSERT, UPDATE, DELETE":
        return Check("rights", "good", "this user may only read")
    schema = store.get("address", "").partition("schema=")[2] or "dueline"
    advice = f"GRANT {missing} ON ALL TABLES IN SCHEMA {schema} TO the user."
    return Check("rights", "bad", f"{missing} is missing on some tables", advice)


def _dead_rows(fact: str, _: Mapping[str, str]) -> Check:
    dead, live = map(int, re.findall(r"\d+", fact)[:2])
    if dead <= DEAD_ROWS_MAX or dead <= live:
        return Check("dead rows", "good", fact)
    advice = "End old transactions, then `VACUUM` the table jobs; see docs/operations/postgres.md."
    return Check("dead rows", "warning", f"{fact}: vacuum does not keep up", advice)


def _oldest_transaction(fact: str, _: Mapping[str, str]) -> Check:
    age_us = parse_span(fact.partition(" (")[0])
    is_holding = "holds watermarks" in fact
    if age_us <= (HOLDING_US_MAX if is_holding else TRANSACTION_US_MAX):
        return Check("oldest transaction", "good", fact)
    effect = "readers of streams wait for it" if is_holding else "it keeps dead rows"
    process = re.search(r"process (\d+)", fact)
    advice = "Commit it or roll it back"
    if process:
        advice += f", or SELECT pg_terminate_backend({process[1]})"
    return Check("oldest transaction", "warning", f"{fact}: {effect}", f"{advice}.")


def _lag(fact: str, _: Mapping[str, str]) -> Check:
    lags = [parse_span(lag) for lag in re.findall(r": (\S+) behind", fact)]
    if max(lags, default=0) <= LAG_US_MAX:
        return Check("replication lag", "good", fact)
    advice = "Find out why it falls behind; a failover to it would lose the last commits."
    return Check("replication lag", "warning", fact, advice)


def _memory(fact: str, _: Mapping[str, str]) -> Check:
    share = re.search(r"(\d+)%$", fact)
    if share is None or int(share[1]) < MEMORY_PERCENT_MAX:
        return Check("memory", "good", fact)
    advice = "Raise maxmemory, or start more workers: a full server refuses new jobs."
    return Check("memory", "warning", fact, advice)


def _append_only_file(fact: str, _: Mapping[str, str]) -> Check:
    name = "append-only file"
    if "failed" in fact:
        return Check(name, "bad", fact, "Free space on the server's disk; see its log.")
    advice = {
        "appendonly no": "Set appendonly yes: a restart loses jobs.",
        "appendfsync no": "Set appendfsync everysec or always: loss of power loses jobs.",
        "?": "Allow CONFIG GET to this user: it cannot be known what loss of power loses.",
        "on-rewrite yes": "Set no-appendfsync-on-rewrite no: rewrites delay flushes.",
    }
    for setting, change in advice.items():
        if setting in fact:
            return Check(name, "warning", fact, change)
    return Check(name, "good", fact)


def _confirmations(fact: str, _: Mapping[str, str]) -> Check:
    name = "replicas that confirm"
    wanted, connected = (int(number) for number in re.findall(r"\d+", fact)[:2])
    if connected < wanted:
        return Check(name, "bad", fact, "Start the replicas: every write is unknown without them.")
    if not wanted and "promote" in fact:
        advice = "Add wait=1 to the URL: a failover loses what no replica has."
        return Check(name, "warning", fact, advice)
    return Check(name, "good", fact)


def _cluster(fact: str, _: Mapping[str, str]) -> Check:
    if fact.startswith("fail"):
        return Check("cluster", "bad", fact, "See CLUSTER INFO: each slot needs a primary.")
    return Check("cluster", "good", fact)


_COMPACT: Final = (
    "Alter the table to UnifiedCompactionStrategy (LeveledCompactionStrategy before 5.0)."
)

_JUDGES: Mapping[str, Callable[[str, Mapping[str, str]], Check]] = {
    "schema": _schema,
    "integrity": _integrity,
    "damaged rows": _damaged,
    "server": _server,
    "stray answers": _strays,
    "nodes that are silent": _silent,
    "nodes' clocks apart": _apart,
    "replication": _replication,
    "replicas": _replicas,
    "consistency": _consistency,
    "settings": _settings,
    "paxos": _paxos,
    "paxos state": _paxos_state,
    "commit log": _commit_log,
    "compaction": _compaction,
    "deleted rows are kept": _kept,
    "largest partition": _largest,
    "deleted rows a read (p99)": _crossed,
    "keyspace is old": _repaired,
    "autovacuum": _autovacuum,
    "connections": _connections,
    "read-only": _read_only,
    "missing rights": _rights,
    "dead rows": _dead_rows,
    "replication lag": _lag,
    "oldest transaction": _oldest_transaction,
    "memory": _memory,
    "append-only file": _append_only_file,
    "replicas that confirm": _confirmations,
    "cluster": _cluster,
}
"""The check of each fact, by its name; a check also gets all other facts."""
