"""Jobs that can be replayed, in plain Python: what `replay.sql` is compared with."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dueline.jobs.audit_rules import FINAL
from dueline.spark.pipeline.replay import (
    LARGE,
    NAMED_MAX,
    NOT_KEPT,
    Chosen,
    Found,
    Kind,
    LeftOut,
    Order,
)

Line = Mapping[str, Any]


def ends(bronze: Iterable[Line], chosen: Chosen) -> list[Line]:
    """Return the last end of each chosen job, in order."""
    last: dict[str, Line] = {}
    for line in bronze:
        if line["outcome"] in FINAL:
            before = last.get(line["job_id"])
            if before is None or _place(line) > _place(before):
                last[line["job_id"]] = line
    lines = [line for line in last.values() if _fits(line, chosen)]
    return sorted(lines, key=lambda line: (line["ended"], line["job_id"]))


def with_arguments(bronze: Iterable[Line], ended: Sequence[Line]) -> list[Line]:
    """Add the arguments in the enqueue events of the runs to their ends."""
    enqueue_events: dict[tuple[str, int], Line] = {}
    wanted = set(map(_run_of, ended))
    for line in bronze:
        run = _run_of(line)
        if line["outcome"] == "enqueued" and line.get("codec") is not None and run in wanted:
            before = enqueue_events.get(run)
            if before is None or _place(line) > _place(before):
                enqueue_events[run] = line
    names = ("codec", "payload_bytes", "payload")
    return [
        {**line, **{name: enqueue_events.get(_run_of(line), {}).get(name) for name in names}}
        for line in ended
    ]


def found(lines: Iterable[Line]) -> Found:
    """Count the jobs by kind, and list those that cannot be replayed."""
    counts: dict[tuple[str, str, str], Counter[str]] = {}
    left_out = []
    for line in lines:
        count = counts.setdefault((line["queue"], line["task"], line["outcome"]), Counter())
        if line["payload"] is not None:
            count["replayable"] += 1
            continue
        is_large = line["payload_bytes"] is not None
        count["too_large" if is_large else "not_kept"] += 1
        why = LARGE if is_large else NOT_KEPT
        left_out.append(LeftOut(line["queue"], line["job_id"], why))
    kinds = [
        Kind(*kind, count.total(), count["replayable"], count["too_large"], count["not_kept"])
        for kind, count in sorted(counts.items())
    ]
    return Found(kinds, sorted(left_out)[:NAMED_MAX])


def calls(lines: Iterable[Line], order: Order) -> list[Line]:
    """Return the rows to enqueue: one for each job whose arguments are kept."""
    called = [line for line in lines if line["payload"] is not None]
    names = ("queue", "task", "tenant", "priority", "codec", "payload")
    return [
        {
            "job_id": f"{line['job_id']}@{order.name}",
            "due": order.start_us + int(rank * order.gap_us),
            **{name: line[name] for name in names},
        }
        for rank, line in enumerate(called)
    ]


def _run_of(line: Line) -> tuple[str, int]:
    return line["job_id"], line["enqueued"]


def _place(line: Line) -> tuple[int, str]:
    return line["at"], line["id"]


def _fits(line: Line, chosen: Chosen) -> bool:
    return (
        line["outcome"] in chosen.outcomes
        and chosen.since_us <= line["ended"] < chosen.until_us
        and (not chosen.queues or line["queue"] in chosen.queues)
        and (not chosen.task or line["task"] == chosen.task)
    )
