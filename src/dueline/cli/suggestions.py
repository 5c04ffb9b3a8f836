"""What to write for a command that does not exist."""

import re
from collections.abc import Collection
from difflib import get_close_matches
from typing import Final

FAMILIAR: Final = {
    "pause": "dueline queues pause NAME",
    "resume": "dueline queues resume NAME",
    "retry": "dueline jobs retry ID, or dueline dead retry",
    "cancel": "dueline jobs cancel ID",
    "delete": "dueline jobs cancel ID",
    "logs": "dueline jobs logs ID, or dueline events",
    "log": "dueline jobs logs ID, or dueline events",
    "status": "dueline jobs show ID, or dueline stats",
    "show": "dueline jobs show ID",
    "inspect": "dueline jobs show ID, or dueline workers list",
    "explain": "dueline jobs explain ID",
    "list": "dueline jobs list",
    "ps": "dueline workers list",
    "run": "dueline worker MODULE:APP",
    "start": "dueline worker MODULE:APP",
    "serve": "dueline worker MODULE:APP, or dueline web",
    "beat": "dueline worker MODULE:APP, which runs schedules, too",
    "scheduler": "dueline worker MODULE:APP, which runs schedules, too",
    "cron": "dueline schedules list",
    "flower": "dueline web",
    "dashboard": "dueline web",
    "send": "dueline enqueue TASK",
}
"""Words that people try first, and the command."""

FAMILIAR_IN: Final = {
    "dueline limits": {
        "rate": "dueline limits set NAME N --per 1s",
        "rates": "dueline limits list",
        "show": "dueline limits holders NAME",
    },
    "dueline workers": {"pause": "dueline workers quiet", "kill": "dueline workers stop"},
    "dueline queues": {"quiet": "dueline queues pause NAME", "set": "dueline queues set NAME"},
    "dueline jobs": {
        "delete": "dueline jobs cancel ID, or dueline dead purge",
        "pause": "dueline queues pause NAME --task TASK",
        "rerun": "dueline jobs retry ID",
        "status": "dueline jobs show ID",
    },
    "dueline dead": {
        "delete": "dueline dead purge --older-than 30d",
        "requeue": "dueline dead retry",
        "errors": "dueline dead list --group",
    },
}
"""The same below a group of commands."""

_CHANGING: Final = frozenset(
    ("restore", "move", "migrate", "purge", "remove", "delete", "cancel", "redrive", "discard")
)
_ALIKE: Final = 0.75
_ALMOST: Final = 0.85
_NO_OPTION: Final = re.compile(r"No such option: --([a-z][a-z0-9_-]*)")
_UNKNOWN: Final = re.compile(r"No such command '(.+?)'")


def with_suggestion(message: str, names: Collection[str], *, about: str) -> str:
    """Return a message about an unknown command, with a command that was meant.

    A command that changes or deletes is only suggested for a word that is almost its name.
    """
    unknown = _UNKNOWN.match(message)
    if unknown is None:
        option = _NO_OPTION.match(message) if about == "dueline enqueue" else None
        if option is None:
            return message
        return f"{message} An argument of the task is written {option[1].replace('-', '_')}=VALUE."
    word = unknown[1]
    familiar = FAMILIAR if about == "dueline" else FAMILIAR_IN.get(about, {})
    if word in familiar:
        return f"{unknown[0]}. Use `{familiar[word]}`."
    close = [
        name
        for cutoff, candidates in (
            (_ALIKE, [name for name in names if name not in _CHANGING]),
            (_ALMOST, [name for name in names if name in _CHANGING]),
        )
        for name in get_close_matches(word, candidates, cutoff=cutoff)
        if name[:1] == word[:1]
    ]
    return f"{unknown[0]}." + (f" Did you mean {' or '.join(map(repr, close))}?" if close else "")
