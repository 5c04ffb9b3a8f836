"""The last death of each matching job, in plain Python: what `deaths.sql` is compared with."""

import re
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

from dueline.spark.pipeline.dead_jobs import Death, Wanted

Line = Mapping[str, Any]

NUMBERS = re.compile("[0-9a-fA-F]{8,}|[0-9]+")


def deaths(silver: Iterable[Line], wanted: Wanted) -> list[Death]:
    """Return the last death of each matching job."""
    last: dict[str, Line] = {}
    for line in silver:
        if line["outcome"] == "dead":
            last[line["job_id"]] = max(
                last.get(line["job_id"], line), line, key=itemgetter("enqueued", "attempt")
            )
    return [
        Death(
            line["job_id"],
            line["attempt"],
            line["started"] is not None,
            line["queue"],
            line["task"],
            fingerprint(line["error"]),
        )
        for line in last.values()
        if _is_wanted(line, wanted)
    ]


def _is_wanted(line: Line, wanted: Wanted) -> bool:
    error = line["error"]
    return (
        wanted.since_us <= line["ended"] < wanted.until_us
        and (not wanted.queues or line["queue"] in wanted.queues)
        and (not wanted.task or line["task"] == wanted.task)
        and (wanted.error in error or wanted.error == fingerprint(error))
    )


def fingerprint(error: str) -> str:
    """Return what errors of one kind share: the first line without numbers."""
    return NUMBERS.sub("#", error.partition("\n")[0])[:120]
