"""The state of a queue at a past time, in plain Python: what `past.sql` is compared with."""

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any, Final

Line = Mapping[str, Any]

_claim = itemgetter("enqueued", "attempt")
_time_of = itemgetter("at", "outcome")

_BESIDE: Final = ("recorded", "noted", "refused", "section")
_LATER: Final = ("retried", "snoozed", "given_back", "crashed")


def state_at(bronze: Iterable[Line], instant_us: int) -> list[Line]:
    """Return the state of each job at a time; see `past.state_at`."""
    last: dict[tuple[str, str], tuple[tuple[int, int, int, int], Line, str]] = {}
    running: dict[tuple[str, str], Line] = {}
    for line in _once(bronze):
        key = line["queue"], line["job_id"]
        if line["ended"] <= instant_us:
            place, state = _read(line)
            if key not in last or last[key][0] < place:
                last[key] = place, line, state
        elif line["worker"] and line["claimed"] <= instant_us:
            running[key] = max(running.get(key, line), line, key=_claim)
    states = {key: (line, state) for key, (_, line, state) in last.items()}
    for key, line in running.items():
        if key not in states or _claim(states[key][0]) < _claim(line):
            states[key] = line, "running"
    return [
        {
            "queue": queue,
            "job_id": job_id,
            "state": state,
            **{name: line[name] for name in ("priority", "tenant", "attempt")},
        }
        for (queue, job_id), (line, state) in states.items()
    ]


def _once(bronze: Iterable[Line]) -> list[Line]:
    """Return the first row of each claim: a worker that ended too late may have written another."""
    first: dict[tuple[str, int, int], Line] = {}
    others: list[Line] = []
    for line in bronze:
        if not line["worker"]:
            others += [] if line["outcome"] in _BESIDE else [line]
            continue
        key = line["job_id"], line["enqueued"], line["attempt"]
        first[key] = min(first.get(key, line), line, key=_time_of)
    return [*others, *first.values()]


def _read(line: Line) -> tuple[tuple[int, int, int, int], str]:
    """Return a row's place among those of its job, and the state in which it left the job."""
    outcome, claim, ended = line["outcome"], _claim(line), line["ended"]
    if line["worker"]:
        return (*claim, 1, ended), "waiting" if outcome in _LATER else outcome
    if outcome == "enqueued":
        return (*claim, 0, ended), "waiting"
    if outcome == "changed":
        return (*claim, 2, ended), "waiting"
    return (*claim, 3, ended), outcome
