"""What processes wrote down.

An event a line, each process in a file of its own and with one write, so that a killed process
leaves whole lines.
"""

from dataclasses import MISSING, dataclass, fields
from typing import Literal

from dueline.core.codec import decode, encode


@dataclass(frozen=True, slots=True)
class Event:
    """What a process asked, or was answered.

    t: microseconds UTC, read just before asking or just after the answer. proc: who.
    type: invoke, ok, no (it did not happen) or unknown (nobody can say).
    f: enqueue; claim; start (a handler is called: ok, without an invoke); settle (a verdict that
      ends the job for good); release (one that lets it wait again: a retry, a snooze, a
      give-back); extend (the claim goes on); carry (the job is moved, or brought back to life);
      mark (a value that only grows was seen); grant (proc was given a lease); crash (proc died;
      ok).
    id: of the job, or the name of the mark or lease; empty in a claim's invoke, which its token
      names.
    attempt: the claim's fence. token: the one that the claim made, or that the verdict names.
    epoch: of a mark: its value; of a grant: its epoch.
    at: of an enqueue: when the job is due; of a claim or extend: when the lease ends; of a
      release: when the job may run again.
    priority, shard: of a claim: the job's; larger runs first. note: words for the story.
    """

    t: int
    proc: str
    type: Literal["invoke", "ok", "no", "unknown"]
    f: Literal[
        "enqueue", "claim", "start", "settle", "release", "extend", "carry", "mark", "grant",
        "crash",
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
    """Write an event as a line of JSON, without what is at its default."""
    given = {
        name: value
        for name, default in _DEFAULTS
        if (value := getattr(event, name)) != default or default is MISSING
    }
    return encode(given) + b"\n"


def events_of(data: bytes) -> list[Event]:
    """Read the lines of one file; a last one that its process did not end is dropped.

    Raises: StoreCorrupt: a whole line is no event.
    """
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    return decode(b"[%b]" % b",".join(lines), list[Event])


def told(event: Event) -> str:
    """Tell an event in a line."""
    words = [event.proc, event.f, event.type]
    if event.attempt:
        words.append(f"claim {event.attempt}")
    words += [
        f"{name}={value}" for name in ("token", "epoch", "at") if (value := getattr(event, name))
    ]
    if event.note:
        words.append(f"({event.note})")
    return " ".join(words)
