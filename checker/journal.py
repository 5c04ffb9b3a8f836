"""Recorded events.

Each process writes to its own file, one line and one write for each event, so that a killed
process leaves complete lines.
"""

from dataclasses import MISSING, dataclass, fields
from typing import Literal

from dueline.core.codec import decode, encode


@dataclass(frozen=True, slots=True)
class Event:
    """A request of a process, or its response.

    t: microseconds UTC, read just before the request or just after the response. proc: process.
    type: invoke, ok, no (no effect) or unknown.
    f: enqueue; claim; start (a handler is called: ok, without an invoke); section (the body of a
      section that must not repeat: invoke before it, ok or no after it); settle (an outcome that
      ends the job); release (an outcome after which the job waits: a retry, snooze or release);
      extend (the claim is extended); carry (the job is moved, or redriven); mark (a watermark was
      read); grant (proc received a lease); crash (proc died; ok).
    id: of the job, or name of the watermark or lease; empty in a claim's invoke, which its token
      identifies.
    attempt: the claim's fence. token: the one that the claim wrote, or that the outcome names.
    epoch: value of a watermark, or epoch of a grant.
    at: due time of an enqueue, end of the lease of a claim or extend, next due time of a release.
    priority, shard: of the claimed job; larger priorities run first. note: text for reports.
    """

    t: int
    proc: str
    type: Literal["invoke", "ok", "no", "unknown"]
    f: Literal[
        "enqueue", "claim", "start", "section", "settle", "release", "extend", "carry", "mark",
        "grant", "crash",
    ]  # fmt: skip
    id: str = ""
    attempt: int = 0
    token: str = ""
    epoch: int = 0
    at: int = 0
    priority: int = 0
    shard: str = ""
    note: str = ""


_DEFAULTS = [(one.name, one.default) for one in fields(Event)]


def line_of(event: Event) -> bytes:
    """Return an event as a line of JSON, without default values."""
    given = {
        name: value
        for name, default in _DEFAULTS
        if (value := getattr(event, name)) != default or default is MISSING
    }
    return encode(given) + b"\n"


def events_of(data: bytes) -> list[Event]:
    """Read the lines of one file; an incomplete last line is ignored.

    Raises: StoreCorrupt: a complete line is not an event.
    """
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    return decode(b"[%b]" % b",".join(lines), list[Event])


def text_of(event: Event) -> str:
    """Return an event as one line of text."""
    words = [event.proc, event.f, event.type]
    if event.attempt:
        words.append(f"claim {event.attempt}")
    words += [
        f"{name}={value}" for name in ("token", "epoch", "at") if (value := getattr(event, name))
    ]
    if event.note:
        words.append(f"({event.note})")
    return " ".join(words)
