"""What ran at once, and what was passed by, without Spark."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from dueline.checker import EARLY_US_MAX
from dueline.spark.rules import SEEN_US

Line = Mapping[str, Any]


def crowded(attempts: Iterable[Line], capacities: Mapping[str, int]) -> Iterator[Line]:
    """Find attempts that were started while as many of their task ran as may."""
    changes: dict[str, list[tuple[int, int, str, int]]] = defaultdict(list)
    for line in attempts:
        if line["task"] not in capacities or line["outcome"] == "crashed":
            continue
        begin, end = line["started"], line["ended"] - EARLY_US_MAX
        if begin is not None and begin < end:
            who = (line["job_id"], line["attempt"])
            changes[line["task"]] += [(begin, 1, *who), (end, -1, *who)]
    for task, some in changes.items():
        running = 0
        for _, step, job_id, attempt in sorted(some):
            running += step
            if step > 0 and running > capacities[task]:
                yield {"job_id": job_id, "attempt": attempt}


def passed_by(attempts: Iterable[Line], moved: Collection[str], most: int) -> Iterator[Line]:
    """Find jobs that were ready while too many less urgent ones were claimed."""
    lanes: dict[tuple[str, int, str], list[Line]] = defaultdict(list)
    for line in attempts:
        lanes[line["queue"], line["shard"], line["tenant"]].append(line)
    for lines in lanes.values():
        claims: dict[int, list[int]] = {}
        for level in {line["priority"] for line in lines}:
            claims[level] = sorted(one["claimed"] for one in lines if one["priority"] < level)
        for line in lines:
            if line["attempt"] != 1 or line["job_id"] in moved:
                continue
            ready = max(line["due"], line["enqueued"]) + SEEN_US
            below = claims[line["priority"]]
            if bisect_left(below, line["claimed"]) - bisect_right(below, ready) > most:
                yield {"job_id": line["job_id"], "attempt": 1}
