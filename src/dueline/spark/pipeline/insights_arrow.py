"""The tables of `insights_spark`, without Spark.

They share thresholds, but no code.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dueline.spark.pipeline.audit_rules import ENDED
from dueline.spark.pipeline.thresholds import (
    CRASHES_MIN,
    FINGERPRINT_CHARACTERS_MAX,
    MINUTE_US,
    NUMBERS,
    SHARDS_MIN,
    SLOW_FACTOR,
    SLOW_STEP_MIN,
    STARTS_MIN,
    WINDOWS_US,
)

Line = Mapping[str, Any]

_NUMBERS: Final = re.compile(NUMBERS)


def flow(silver: Iterable[Line], events: Iterable[Line]) -> list[Line]:
    """Count the jobs that came and went in each minute; see `insights_spark.flow`."""
    could: dict[tuple[str, int, str, int], int] = {}
    gone: dict[tuple[str, int, str, int], int] = {}
    for lines in (silver, events):
        for line in lines:
            if line["outcome"] == "changed":
                continue
            key = line["queue"], line["shard"], line["job_id"], line["enqueued"]
            ready = max(line["due"], line["enqueued"])
            could[key] = min(could.get(key, ready), ready)
            if line["outcome"] in ENDED or line["outcome"] == "dead":
                gone[key] = max(gone.get(key, line["ended"]), line["ended"])
    cells: dict[tuple[str, int, int], list[int]] = defaultdict(lambda: [0, 0])
    for key, ready in could.items():
        queue, shard, *_ = key
        at = min(ready, gone.get(key, ready))
        cells[queue, shard, _minute(at)][0] += 1
    for (queue, shard, *_), at in gone.items():
        cells[queue, shard, _minute(at)][1] += 1
    return [
        {"queue": queue, "shard": shard, "minute": minute, "came": came, "went": went}
        for (queue, shard, minute), (came, went) in cells.items()
    ]


def slo(silver: Iterable[Line], *, target_us: int, objective: float, now_us: int) -> list[Line]:
    """Compute the share of starts on time; see `insights_spark.slo`."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for line in silver:
        if line["started"] is None:
            continue
        cell = counts[line["queue"]]
        is_in_time = line["lateness_us"] <= target_us
        cell.update(started=1, in_time=int(is_in_time))
        for name, span_us in WINDOWS_US.items():
            if now_us - span_us < line["started"] <= now_us:
                cell[f"started_{name}"] += 1
                cell[f"in_time_{name}"] += int(is_in_time)
    return [
        {
            "queue": queue,
            "started": cell["started"],
            "in_time": cell["in_time"],
            "share": cell["in_time"] / cell["started"],
            **{f"started_{name}": cell[f"started_{name}"] for name in WINDOWS_US},
            **{f"burn_{name}": _burn(cell, name, objective) for name in WINDOWS_US},
        }
        for queue, cell in counts.items()
    ]


def _burn(cell: Mapping[str, int], name: str, objective: float) -> float | None:
    started = cell[f"started_{name}"]
    return (1 - cell[f"in_time_{name}"] / started) / (1 - objective) if started else None


def fairness(gold_minute: Iterable[Line]) -> list[Line]:
    """Compute the fairness between tenants in each minute; see `insights_spark.fairness`."""
    served: dict[tuple[str, int], list[int]] = defaultdict(list)
    for line in gold_minute:
        served[line["queue"], line["minute"]].append(line["attempts"])
    return [
        {
            "queue": queue,
            "minute": minute,
            "tenants": len(shares),
            "attempts": sum(shares),
            "jain": sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares)),
        }
        for (queue, minute), shares in served.items()
    ]


def suspicious(silver: Iterable[Line]) -> list[Line]:
    """Find shards that are worse than others of their queue; see `insights_spark`."""
    queues: dict[str, dict[int, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    steps: dict[tuple[str, int], list[int]] = defaultdict(list)
    for line in silver:
        queue, shard = line["queue"], line["shard"]
        queues[queue][shard].update(attempts=1, crashed=int(line["outcome"] == "crashed"))
        if line["lateness_us"] is not None:
            steps[queue, shard].append(max(0, line["lateness_us"]).bit_length())
    found: list[Line] = []
    for queue, shards in queues.items():
        if len(shards) < SHARDS_MIN:
            continue
        middles = {shard: _middle(steps[queue, shard]) for shard in shards if steps[queue, shard]}
        usual = _middle(list(middles.values())) if middles else 0
        command = f"dueline shards lag --queue {queue}"
        for shard, cell in shards.items():
            started, step = len(steps[queue, shard]), middles.get(shard, 0)
            shard_key = {"queue": queue, "shard": shard, "command": command}
            if started >= STARTS_MIN and step >= max(SLOW_STEP_MIN, usual + SLOW_FACTOR):
                words = (
                    f"half of {started} starts are late by 2^{step - 1} us or more;"
                    f" the queue's by 2^{usual - 1}"
                )
                found.append(shard_key | {"reason": "slow", "evidence": words})
            crashed = sum(one["crashed"] for one in shards.values()) - cell["crashed"]
            attempts = sum(one["attempts"] for one in shards.values()) - cell["attempts"]
            is_deadly = cell["crashed"] * attempts > 4 * crashed * cell["attempts"]
            if cell["crashed"] >= CRASHES_MIN and is_deadly:
                words = (
                    f"{cell['crashed']} of {cell['attempts']} attempts crashed;"
                    f" of the other shards' {crashed} of {attempts}"
                )
                found.append(shard_key | {"reason": "crashes", "evidence": words})
    return found


def _middle(numbers: Sequence[int]) -> int:
    return sorted(numbers)[(len(numbers) + 1) // 2 - 1]


def poison(silver: Iterable[Line]) -> list[Line]:
    """Find causes of dead jobs and dead workers; see `insights_spark.poison`."""
    bad = [line for line in silver if line["outcome"] in ("dead", "crashed")]
    crashes = Counter(_run_of(line) for line in bad if line["outcome"] == "crashed")
    kinds: dict[tuple[str, str, str], list[Line]] = defaultdict(list)
    for line in bad:
        if line["outcome"] == "dead" or crashes[_run_of(line)] > 1:
            kinds[line["queue"], line["task"], fingerprint(line["error"])].append(line)
    return [
        {
            "queue": queue,
            "task": task,
            "fingerprint": print_,
            "jobs": len({line["job_id"] for line in lines}),
            "attempts": len(lines),
            "crashed": sum(line["outcome"] == "crashed" for line in lines),
            "dead": sum(line["outcome"] == "dead" for line in lines),
            "last": max(line["ended"] for line in lines),
        }
        for (queue, task, print_), lines in kinds.items()
    ]


def _run_of(line: Line) -> tuple[str, str, int]:
    return line["queue"], line["job_id"], line["enqueued"]


def fingerprint(error: str) -> str:
    """Return what errors of one kind share: the first line without numbers."""
    return _NUMBERS.sub("#", error.partition("\n")[0])[:FINGERPRINT_CHARACTERS_MAX]


def _minute(instant_us: int) -> int:
    return instant_us // MINUTE_US * MINUTE_US
