"""Each table of a lake in plain Python, from all rows of bronze at once.

It shares no code with the pipeline, so that each table has an independent witness.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import floor
from typing import Any

from tests.harness.spark.tables import Line

MINUTE = 60_000_000
OUTCOMES = (
    "done", "cancelled", "expired", "lost", "dead", "retried", "crashed", "snoozed", "given_back",
)  # fmt: skip
ENDS = ("done", "cancelled", "expired", "lost", "dead")
SPANS = ("wait_us", "lateness_us", "run_us")
TARGET = 1_000_000
OBJECTIVE = 0.99


def minute(instant: int) -> int:
    """Return the minute of a timestamp."""
    return instant // MINUTE * MINUTE


def fingerprint(error: str) -> str:
    """Return what errors of one kind share."""
    return re.sub("[0-9a-fA-F]{8,}|[0-9]+", "#", error.split("\n", 1)[0])[:120]


def silver(rows: Iterable[Line]) -> list[Line]:
    """Return one row for each attempt."""
    claims: dict[Any, list[Line]] = defaultdict(list)
    for row in rows:
        if row["worker"]:
            claims[row["job_id"], row["enqueued"], row["attempt"]].append(row)
    names = "at", "outcome", "id", "shard", "ended", "error", "worker"
    runs: dict[Any, list[Line]] = defaultdict(list)
    for key in sorted(claims):
        runs[key[:2]].append(min(claims[key], key=lambda row: tuple(row[name] for name in names)))
    made: list[Line] = []
    for run in runs.values():
        crashes = sum(row["outcome"] == "crashed" for row in run)
        seen: set[Any] = set()
        before = None
        for row in run:
            kept = {name: row[name] for name in (
                "queue", "shard", "job_id", "attempt", "task", "tenant", "priority", "enqueued",
                "due", "claimed", "started", "ended", "outcome", "error", "worker",
            )}  # fmt: skip
            spans: dict[str, Any] = dict.fromkeys(SPANS)
            if row["started"] is not None:
                spans["wait_us"] = row["started"] - max(row["due"], row["enqueued"])
                spans["lateness_us"] = row["started"] - row["due"]
                spans["run_us"] = row["ended"] - row["started"]
            fails = row["outcome"] == "dead" or (row["outcome"] == "crashed" and crashes > 1)
            kind = row["queue"], row["task"], fingerprint(row["error"])
            made.append(kept | spans | {
                "fingerprint": fingerprint(row["error"]) if row["error"] else None,
                "is_takeover": before == "crashed",
                "is_failure": fails,
                "is_first_failure": fails and kind not in seen,
            })  # fmt: skip
            seen |= {kind} if fails else set()
            before = row["outcome"]
    return made


def added(counts: dict[Any, Counter[str]], keys: Sequence[str], names: Sequence[str]) -> list[Line]:
    """Return counts as rows."""
    return [
        dict(zip(keys, key, strict=True)) | {name: cell[name] for name in names}
        for key, cell in counts.items()
    ]


def gold_minute(rows: Sequence[Line]) -> list[Line]:
    """Count ended attempts in each minute."""
    counts: dict[Any, Counter[str]] = defaultdict(Counter)
    for row in rows:
        cell = counts[row["queue"], row["tenant"], minute(row["ended"])]
        cell.update({row["outcome"]: 1, "attempts": 1, "takeovers": int(row["is_takeover"])})
        cell.update({name: row[name] or 0 for name in SPANS})
    names = "attempts", *OUTCOMES, "takeovers", *SPANS
    return added(counts, ("queue", "tenant", "minute"), names)


def steps(rows: Sequence[Line], name: str) -> list[Line]:
    """Count durations in steps that double."""
    counts: dict[Any, Counter[str]] = defaultdict(Counter)
    for row in rows:
        if row[name] is not None:
            step = max(0, row[name]).bit_length()
            counts[row["queue"], row["tenant"], minute(row["ended"]), step]["attempts"] += 1
    return added(counts, ("queue", "tenant", "minute", "step"), ("attempts",))


def gold_start(rows: Sequence[Line], target: int = TARGET) -> list[Line]:
    """Count starts in each minute."""
    counts: dict[Any, Counter[str]] = defaultdict(Counter)
    for row in rows:
        if row["started"] is not None:
            cell = counts[row["queue"], minute(row["started"])]
            cell.update(started=1, in_time=int(row["lateness_us"] <= target))
    return added(counts, ("queue", "minute"), ("started", "in_time"))


def gold_shard(rows: Sequence[Line]) -> list[Line]:
    """Count the attempts of each shard."""
    counts: dict[Any, Counter[str]] = defaultdict(Counter)
    for row in rows:
        late = row["lateness_us"]
        step = -1 if late is None else max(0, late).bit_length()
        cell = counts[row["queue"], row["shard"], step]
        cell.update(attempts=1, crashed=int(row["outcome"] == "crashed"))
    return added(counts, ("queue", "shard", "step"), ("attempts", "crashed"))


def gold_failure(rows: Sequence[Line]) -> list[Line]:
    """Count failures by cause and minute."""
    counts: dict[Any, Counter[str]] = defaultdict(Counter)
    for row in rows:
        if row["is_failure"]:
            kind = row["queue"], row["task"], fingerprint(row["error"]), minute(row["ended"])
            counts[kind].update({row["outcome"]: 1, "attempts": 1})
            counts[kind]["jobs"] += row["is_first_failure"]
    keys = "queue", "task", "fingerprint", "minute"
    return added(counts, keys, ("attempts", "crashed", "dead", "jobs"))


def flow(rows: Iterable[Line]) -> list[Line]:
    """Count the jobs that became ready and that ended."""
    runs: dict[Any, list[Line]] = defaultdict(list)
    for row in rows:
        if row["outcome"] != "changed":
            runs[row["queue"], row["job_id"], row["enqueued"]].append(row)
    counts: dict[Any, Counter[str]] = defaultdict(Counter)
    for (queue, *_), run in runs.items():
        shard = min(row["shard"] for row in run)
        ready = min(max(row["due"], row["enqueued"]) for row in run)
        ends = [row["ended"] for row in run if row["outcome"] in ENDS]
        counts[queue, shard, minute(min([ready, *map(max, [ends] if ends else [])]))]["came"] += 1
        if ends:
            counts[queue, shard, minute(max(ends))]["went"] += 1
    return added(counts, ("queue", "shard", "minute"), ("came", "went"))


def slo(starts: Sequence[Line], objective: float = OBJECTIVE) -> list[Line]:
    """Compute burn rates."""
    burns: list[Line] = []
    newest = max((row["minute"] for row in starts), default=0)
    for queue in {row["queue"] for row in starts}:
        mine = [row for row in starts if row["queue"] == queue]
        line: dict[str, Any] = {"queue": queue}
        for name, span in (("", None), ("_5m", 5), ("_1h", 60), ("_6h", 360)):
            inside = [r for r in mine if span is None or r["minute"] > newest - span * MINUTE]
            started = sum(row["started"] for row in inside)
            in_time = sum(row["in_time"] for row in inside)
            line[f"started{name}"] = started
            if span is None:
                line |= {"in_time": in_time, "share": in_time / started}
            else:
                burn = (1 - in_time / started) / (1 - objective) if started else None
                line[f"burn{name}"] = burn
        burns.append(line)
    return burns


def fairness(minutes: Sequence[Line]) -> list[Line]:
    """Compute who waited how much longer than a tenant with as many attempts."""
    cells: dict[Any, list[tuple[str, int, int]]] = defaultdict(list)
    for row in minutes:
        late_us = floor(row["lateness_us"] / row["attempts"])
        cells[row["queue"], row["minute"]].append((row["tenant"], row["attempts"], late_us))
    lines: list[Line] = []
    for (queue, at), tenants in cells.items():
        over = {
            tenant: late_us - min(us for _, other, us in tenants if other >= attempts)
            for tenant, attempts, late_us in tenants
        }
        most = max(over.values())
        latest = min(tenant for tenant, us in over.items() if us == most) if most else None
        lines.append(
            {"queue": queue, "minute": at, "tenants": len(tenants),
             "attempts": sum(attempts for _, attempts, _ in tenants),
             "over_us": most, "tenant": latest}
        )  # fmt: skip
    return lines


def poison(failures: Sequence[Line]) -> list[Line]:
    """Add up failures by cause."""
    kinds: dict[Any, list[Line]] = defaultdict(list)
    for row in failures:
        kinds[row["queue"], row["task"], row["fingerprint"]].append(row)
    return [
        dict(zip(("queue", "task", "fingerprint"), kind, strict=True))
        | {name: sum(r[name] for r in lines) for name in ("jobs", "attempts", "crashed", "dead")}
        | {"last": max(row["minute"] for row in lines)}
        for kind, lines in kinds.items()
    ]


def suspicious(rows: Sequence[Line]) -> list[Line]:
    """Find shards that are worse than others."""
    suspects: list[Line] = []
    for queue in {row["queue"] for row in rows}:
        shards: dict[int, list[Line]] = defaultdict(list)
        for row in rows:
            if row["queue"] == queue:
                shards[row["shard"]].append(row)
        late = {
            shard: sorted(max(0, r["lateness_us"]).bit_length() for r in lines if r["started"])
            for shard, lines in shards.items()
        }
        middles = {shard: bits[(len(bits) + 1) // 2 - 1] for shard, bits in late.items() if bits}
        usual = sorted(middles.values())[(len(middles) + 1) // 2 - 1] if middles else 0
        crashed = {n: sum(r["outcome"] == "crashed" for r in lines) for n, lines in shards.items()}
        for shard, lines in shards.items():
            key = {"queue": queue, "shard": shard,
                   "command": f"dueline shards lag --queue {queue}"}  # fmt: skip
            step, started = middles.get(shard, 0), len(late[shard])
            others = sum(map(len, shards.values())) - len(lines)
            of_others = sum(crashed.values()) - crashed[shard]
            if len(shards) >= 2 and started >= 20 and step >= max(21, usual + 2):
                words = (
                    f"half of {started} starts are late by 2^{step - 1} us or more;"
                    f" the queue's by 2^{usual - 1}"
                )
                suspects.append(key | {"reason": "slow", "evidence": words})
            is_deadly = crashed[shard] * others > 4 * of_others * len(lines)
            if len(shards) >= 2 and crashed[shard] >= 3 and is_deadly:
                words = (
                    f"{crashed[shard]} of {len(lines)} attempts crashed;"
                    f" of the other shards' {of_others} of {others}"
                )
                suspects.append(key | {"reason": "crashes", "evidence": words})
    return suspects


def tables(rows: Sequence[Line], target: int = TARGET) -> dict[str, list[Line]]:
    """Return all tables above bronze, by name."""
    attempts = silver(rows)
    minutes, starts, failures = (
        gold_minute(attempts), gold_start(attempts, target), gold_failure(attempts),
    )  # fmt: skip
    return {
        "silver": attempts,
        "gold_minute": minutes,
        "gold_lateness": steps(attempts, "lateness_us"),
        "gold_run": steps(attempts, "run_us"),
        "gold_start": starts,
        "gold_shard": gold_shard(attempts),
        "gold_failure": failures,
        "flow": flow(rows),
        "slo": slo(starts),
        "fairness": fairness(minutes),
        "suspicious": suspicious(attempts),
        "poison": poison(failures),
    }
