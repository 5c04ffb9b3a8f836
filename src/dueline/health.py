"""What is wrong with a store."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dueline import cuts, groups
from dueline.clock import SECOND_US
from dueline.limited import Waiting
from dueline.queue import Queues
from dueline.recipes.findings import findings
from dueline.recipes.offices import holder_of
from dueline.recipes.registry import Presence, present
from dueline.search import Like, search
from dueline.shards import LATE_US, shards_of
from dueline.span import instant_text, parse_span, span_text
from dueline.stats import count
from dueline.store import Delete, Put

SKEW_US_MAX = 30 * SECOND_US
"""A machine whose clock is so far from the store's is to be put right."""

PROBES = "probes"
PROBE_KEPT_US = 60 * SECOND_US

SCAN_MAX = 10_000
"""Jobs of one queue that are read for the check whether somebody serves them."""

Verdict = Literal["good", "warning", "bad"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. advice: what to do; empty where it is good."""

    name: str
    verdict: Verdict
    finding: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What a look at the store found. store: what it says of itself."""

    checks: Sequence[Check]
    store: Mapping[str, str]
    workers: Sequence[Presence]

    def is_bad(self) -> bool:
        """Tell whether something has to be put right."""
        return any(check.verdict == "bad" for check in self.checks)


def examine(queues: Queues) -> Report:
    """Look at the store, the clocks, the workers, and whether every queue is served."""
    store = queues.store.describe()
    workers = present(queues.store)
    checks = [
        *_of_store(store),
        _clock("this machine", queues.time.skew_us()),
        *(_clock(f"worker {one.worker}", one.clock_skew_us) for one in workers),
        _alive(workers),
        elected(queues),
        *_found_by_audits(queues),
        *_unserved(queues, workers),
        *neglected(queues, queues.catalog.names(), workers),
        *standing(queues, max_age_us=LATE_US, verdict="warning"),
    ]
    return Report(checks, store, workers)


def is_writable(queues: Queues) -> Check:
    """See whether the store takes a write, and gives it back.

    Raises: StoreUnavailable: it cannot be reached.
    """
    version = queues.ids.token()
    expires_us = queues.time.latest_us() + PROBE_KEPT_US
    key = version.hex()
    queues.store.commit(PROBES, (Put(key, version, b"{}", expires_us=expires_us),))
    found = queues.store.read(PROBES, after=key[:-1], limit=16)  # all keys of that beginning
    queues.store.commit(PROBES, (Delete(key),))
    if any(record.key == key for record in found):
        return Check("store", "good", "it can be written")
    return Check("store", "bad", "what was written is not there", "See `dueline doctor`.")


def is_ready(queues: Queues, *, max_age_us: int) -> list[Check]:
    """See whether jobs that are ready are served, where nothing keeps them: no pause, no limit."""
    now_us = queues.time.latest_us()
    workers = present(queues.store)
    waiting = Waiting(queues)
    checks: list[Check] = []
    for name in queues.catalog.names():
        settings = queues.catalog.settings(name)
        if settings.is_paused:
            continue
        like = Like("ready", name, but=settings.paused_tenants)
        oldest = search(queues, like, limit=1, leave_out=waiting.has).jobs
        if not oldest:
            continue
        age_us = now_us - oldest[0].at_us
        waits = f"the oldest ready job waits for {span_text(age_us)}"
        if not any(name in one.queues for one in workers):
            checks.append(Check(f"queue {name}", "bad", f"no live worker serves it, and {waits}"))
        elif age_us > max_age_us:
            checks.append(Check(f"queue {name}", "bad", waits))
    checks += standing(queues, max_age_us=max_age_us, verdict="bad")
    return checks or [Check("queues", "good", "all that is ready is served in time")]


def _of_store(store: Mapping[str, str]) -> Iterator[Check]:
    """Judge what a store says of itself; each fact is one that some stores do not have."""
    for fact, judge in _JUDGES.items():
        if fact in store:
            yield judge(store[fact], store)


def _schema(version: str, _: Mapping[str, str]) -> Check:
    return Check("schema", "good", f"version {version}")


def _integrity(finding: str, _: Mapping[str, str]) -> Check:
    if finding == "ok":
        return Check("integrity", "good", "no damage found")
    return Check("integrity", "bad", finding, "Stop all workers and restore a backup.")


def _server(versions: str, store: Mapping[str, str]) -> Check:
    """Judge the versions of all nodes: the session sees only the one that it asks first."""
    needed = store.get("server needed", "0")
    several = versions.split(", ")
    if any(_version(one) < _version(needed) for one in several):
        return Check("server", "bad", versions, f"Bring every node to {needed} or later.")
    if len(several) > 1:
        return Check("server", "warning", versions, "End the upgrade of the servers.")
    return Check("server", "good", versions)


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:2]))


def _silent(hosts: str, _: Mapping[str, str]) -> Check:
    return Check("nodes", "warning", f"no answer from {hosts}", "Start them, or see why.")


def _apart(apart: str, _: Mapping[str, str]) -> Check:
    apart_us = parse_span(apart)
    if apart_us < SECOND_US:
        return Check("nodes' clocks", "good", "in step")
    verdict: Verdict = "bad" if apart_us >= SKEW_US_MAX else "warning"
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
    return min(int(one.rpartition(": ")[2]) for one in replicas.split(", "))


def _consistency(level: str, store: Mapping[str, str]) -> Check:
    """Judge where decisions are made: two data centres that decide alone both claim a job."""
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
    """Judge when a write reaches the disk: of three replicas two have it when one is lost."""
    if mode in ("batch", "group"):
        return Check("commit log", "good", mode)
    if mode == "periodic" and _least(store.get("replicas", ": 1")) > 2:  # noqa: PLR2004
        return Check("commit log", "good", "periodic; only a loss of all power at once loses jobs")
    finding = f"{mode}: a node that is killed loses the last jobs"
    advice = "Set `commitlog_sync: batch` on every node, or have 3 replicas."
    return Check("commit log", "warning", finding, advice)


_JUDGES: Mapping[str, Callable[[str, Mapping[str, str]], Check]] = {
    "schema": _schema,
    "integrity": _integrity,
    "server": _server,
    "nodes that are silent": _silent,
    "nodes' clocks apart": _apart,
    "replication": _replication,
    "replicas": _replicas,
    "consistency": _consistency,
    "paxos": _paxos,
    "commit log": _commit_log,
}
"""What is judged, by the name of the fact; a judge also gets all other facts."""


def _clock(whose: str, skew_us: int) -> Check:
    name = f"clock of {whose}"
    away = f"{span_text(skew_us)} {'ahead of' if skew_us > 0 else 'behind'} the store's"
    if abs(skew_us) >= SKEW_US_MAX:
        return Check(name, "bad", away, "Have the machine keep time (NTP).")
    return Check(name, "good", "in step with the store's" if abs(skew_us) < SECOND_US else away)


def _alive(workers: Sequence[Presence]) -> Check:
    held, slots = sum(one.held for one in workers), sum(one.slots for one in workers)
    finding = f"alive: {len(workers)}, jobs held: {held}, slots: {slots}"
    return Check("workers", "good", finding)


def elected(queues: Queues) -> Check:
    """Tell who is the monitor."""
    grant = holder_of(queues.store)
    if grant is None or grant.until_us <= queues.time.earliest_us():
        return Check("monitor", "good", "nobody is elected, and nothing waits for one")
    return Check("monitor", "good", f"{grant.holder}, epoch {grant.epoch}")


def _found_by_audits(queues: Queues) -> Iterator[Check]:
    found = findings(queues.store)
    if found:
        last = found[-1]
        yield Check(
            "audit",
            "warning",
            f"jobs were found that nobody looked at, and are looked at again: {len(found)} times, "
            f"the last at {instant_text(last.at_us)}, in the queue {last.queue}, job {last.job}",
            "Was that job's enqueue acknowledged? If so, report it.",
        )


def neglected(queues: Queues, names: Iterable[str], workers: Sequence[Presence]) -> Iterator[Check]:
    """Find shards of some queues that are late though workers serve them."""
    served = {name for one in workers for name in one.queues}
    for name in sorted(served.intersection(names)):
        if queues.catalog.settings(name).is_paused:
            continue
        now_us = queues.time.latest_us()
        for shard in shards_of(queues, name):
            if shard.lag_us(now_us) > LATE_US:
                yield Check(
                    f"queue {name}, shard {shard.number}",
                    "warning",
                    f"its oldest ready job waits for {span_text(shard.lag_us(now_us))}",
                    f"Start more workers, or see `dueline queues show {name}`.",
                )


def standing(queues: Queues, *, max_age_us: int, verdict: Verdict) -> Iterator[Check]:
    """Find groups of streams that make no progress: one that is stuck still beats."""
    store, now_us = queues.store, queues.time.latest_us()
    for stream, settings in cuts.streams(store):
        for group in groups.registered(store, stream):
            members = groups.members(store, stream, group)
            busy = [one for one in members if one.busy_us and now_us - one.busy_us > max_age_us]
            shards = cuts.shards_of(settings)
            waits_us = groups.waits_us(store, stream, group, shards, now_us=now_us) or 0
            name = f"group {stream}/{group}"
            if busy:
                span = span_text(now_us - busy[0].busy_us)
                finding = f"{busy[0].name} has been handling one batch for {span}"
                yield Check(name, verdict, finding, "See what its handler waits for; restart it.")
            elif waits_us > max_age_us:
                finding = f"its oldest event waits for {span_text(waits_us)}"
                finding += "" if members else ", and it has no live member"
                advice = "Start more consumers; or `stream.forget_group` if it is not used."
                yield Check(name, verdict, finding, advice)


def _unserved(queues: Queues, workers: Sequence[Presence]) -> Iterator[Check]:
    for name in queues.catalog.names():
        if queues.catalog.settings(name).is_paused:
            continue
        counts = count(queues, name, workers, most=SCAN_MAX)
        if counts.ready and not counts.workers:
            least = "at least " if counts.is_capped else ""
            yield Check(
                f"queue {name}",
                "warning",
                f"no live worker serves it; jobs that are ready: {least}{counts.ready}",
                f"Start one: dueline worker MODULE:APP -q {name}",
            )
