"""Filters of jobs as people write them: `task:shop.mail state:dead priority>3 error:Timeout`."""

import re
from dataclasses import replace
from typing import Any, Final

from dueline.admin.search import ENDED, ENDED_STATES, JobFilter
from dueline.core.clock import asked_instant_us
from dueline.core.durations import parse_span
from dueline.core.errors import BadInput
from dueline.jobs.counts import WAITING_STATES

STATES: Final = (*WAITING_STATES, "dead", "uncertain", *ENDED_STATES[:2], "lost", ENDED)
"""All states by which jobs can be searched."""

FILTER_CHARACTERS_MAX: Final = 500

_WORD = re.compile(
    r"""(?:(?P<name>[a-z]+)(?P<sign>:|>=|<=|>|<))?(?:"(?P<quoted>[^"]*)"|(?P<plain>[^\s"]+))(?!\S)"""
)
_OPEN = re.compile(r"[a-z]+[:<>]")
_TEXTS: Final = ("state", "queue", "task", "tenant", "tag", "error", "worker")
_PERIOD: Final = ("since", "until")
_HINT: Final = 'Use words such as queue:mail state:dead task:shop.* priority>3 error:"timed out".'


def parse_filter(text: str, now_us: int) -> JobFilter:
    """Return the filter that a string describes.

    The words are joined by "and". Each is NAME:VALUE (state, queue, task, tenant, tag, error,
    worker; since and until of ended jobs), `priority` or `due` with a comparison, or a part of the
    task, error or id.

    Args:
        text: The filter, such as `task:shop.mail state:dead tenant:a priority>3 error:Timeout`.
        now_us: The time from which `due<1h` counts.

    Raises:
        BadInput: A word cannot be read, or a name occurs twice.
    """
    if len(text) > FILTER_CHARACTERS_MAX:
        raise BadInput(f"A filter has at most {FILTER_CHARACTERS_MAX} characters.", hint=_HINT)
    fields: dict[str, Any] = {}
    place, text = 0, text.strip()
    while place < len(text):
        match = _WORD.match(text, place)
        if match is None:
            raise BadInput(f"{text[place:]!r:.80} cannot be read as a filter.", hint=_HINT)
        for name, value in _read(match, now_us).items():
            if name in fields:
                raise BadInput(f"The filter has two words for {name!r}.", hint=_HINT)
            fields[name] = value
        place = match.end()
        place += len(text[place:]) - len(text[place:].lstrip())
    return replace(JobFilter(), **fields)


def _read(match: re.Match[str], now_us: int) -> dict[str, Any]:
    name, sign = match["name"], match["sign"]
    value = match["plain"] if match["quoted"] is None else match["quoted"]
    if name is None:
        if match["plain"] and _OPEN.match(value):
            raise BadInput(f"{value!r:.80} has no value.", hint=_HINT)
        return {"text": value}
    if name == "priority":
        return _priority(sign, value)
    if name == "due" and sign == "<":
        return {"due_before_us": _instant(value, now_us)}
    if name in _PERIOD and sign == ":":
        return {f"{name}_us": read_past(value, now_us, name)}
    if name not in _TEXTS or sign != ":":
        raise BadInput(f"{match[0]!r:.80} is not a word of a filter.", hint=_HINT)
    if name == "state" and value not in STATES:
        raise BadInput(f"{value!r:.80} is not a state.", hint=f"Use one of {', '.join(STATES)}.")
    return {name: value}


def _priority(sign: str, value: str) -> dict[str, int]:
    try:
        number = int(value)
    except ValueError as error:
        raise BadInput(f"{value!r:.80} is not a priority.", hint="Use priority>3.") from error
    least = {"priority_min": number + (sign == ">")} if sign in (":", ">", ">=") else {}
    most = {"priority_max": number - (sign == "<")} if sign in (":", "<", "<=") else {}
    return least | most


def _instant(value: str, now_us: int) -> int:
    """Read a timestamp, or a duration from now."""
    if value[:4].isdecimal() and value[4:5] == "-":
        from datetime import datetime  # noqa: PLC0415  (seldom needed)

        try:
            return asked_instant_us(datetime.fromisoformat(value), "due")
        except ValueError as error:
            raise BadInput(f"{value!r:.80} is not a timestamp.", hint="Use due<1h.") from error
    sign, span = (-1, value[1:]) if value.startswith("-") else (1, value)
    return now_us + sign * parse_span(span)


def read_past(text: str, now_us: int, name: str) -> int:
    """Return the time of a timestamp, or of a duration before now; name: for messages."""
    if text[:4].isdecimal() and text[4:5] == "-":
        from datetime import datetime  # noqa: PLC0415  (seldom needed)

        try:
            return asked_instant_us(datetime.fromisoformat(text), name)
        except ValueError as error:
            hint = f"Use {name}:2h, or {name}:2027-01-01T09:00:00+02:00."
            raise BadInput(f"{text!r:.80} is not a timestamp.", hint=hint) from error
    return now_us - parse_span(text)


def written_filter(**words: str) -> str:
    """Return a filter with these words; values are quoted where needed."""
    shown = {name: value.replace('"', " ") for name, value in words.items() if value}
    return " ".join(
        f'{name}:"{value}"' if re.search(r"\s", value) else f"{name}:{value}"
        for name, value in shown.items()
    )


def with_state(text: str, state: str | None) -> str:
    """Return a filter with another state; None for unfinished jobs."""
    words = [word for word in text.split(" ") if word and not word.startswith("state:")]
    return " ".join([*words, *([f"state:{state}"] if state else [])])
