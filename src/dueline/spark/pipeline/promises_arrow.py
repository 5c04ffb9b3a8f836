"""Violations of promised capacities and order, without Spark; see `promises_spark`."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any

from dueline.spark.pipeline.audit_rules import EARLY_US_MAX, SEEN_US

Line = Mapping[str, Any]
Run = tuple[str, int]
"""A job id and its enqueue time: an id may be enqueued again after its job ended."""


def crowded(attempts: Iterable[Line], capacities: Mapping[str, int]) -> Iterator[Line]:
    """Find attempts that started while the allowed number of their task was running."""
    changes: dict[str, list[tuple[int, int, tuple[str, int, int], Line]]] = defaultdict(list)
    for line in attempts:
        if line["task"] not in capacities or line["outcome"] == "crashed":
            continue
        begin, end = line["started"], line["ended"] - EARLY_US_MAX
        if begin is not None and begin < end:
            who = line["job_id"], line["enqueued"], line["attempt"]
            changes[line["task"]] += [(begin, 1, who, line), (end, -1, who, line)]
    for task, some in changes.items():
        running = 0
        for _, step, _, line in sorted(some, key=itemgetter(0, 1, 2)):
            running += step
            if step > 0 and running > capacities[task]:
                yield line


def passed_by(attempts: Iterable[Line], moved: Collection[str | Run], most: int) -> Iterator[Line]:
    """Find jobs that were ready while too many less urgent jobs were claimed."""
    lanes: dict[tuple[str, int, str], list[Line]] = defaultdict(list)
    for line in attempts:
        lanes[line["queue"], line["shard"], line["tenant"]].append(line)
    for lines in lanes.values():
        claims: dict[int, list[int]] = {}
        for level in {line["priority"] for line in lines}:
            claims[level] = sorted(one["claimed"] for one in lines if one["priority"] < level)
        for line in lines:
            run = line["job_id"], line["enqueued"]
            if line["attempt"] != 1 or run[0] in moved or run in moved:
                continue
            ready = max(line["due"], line["enqueued"]) + SEEN_US
            below = claims[line["priority"]]
            if bisect_left(below, line["claimed"]) - bisect_right(below, ready) > most:
                yield line
