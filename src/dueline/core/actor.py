"""Who changes jobs and settings by hand, and through which door.

An actor is a value that a door makes and hands down: nothing below reads who runs the process.
"""

import sys
from types import FrameType
from typing import Final, Literal, NamedTuple

Door = Literal["command line", "HTTP API", "dashboard", "code"]
"""How a change was made."""

NAME_CHARACTERS_MAX: Final = 200

_UNKNOWN: Final = "unknown"
_OWN: Final = __name__.partition(".")[0]
_OF_THREADS: Final = frozenset(("asyncio", "concurrent", "contextlib", "threading"))


class Actor(NamedTuple):
    """Who makes a change: a name that the door has authenticated, and the door."""

    name: str
    door: Door

    def did(self, what: str) -> str:
        """Return what the history says of a change, such as "cancelled by ann@web-1 (code)"."""
        return f"{what} by {self.name} ({self.door})"


def actor_of(name: str, door: Door) -> Actor:
    """Return an actor whose name is one line of printable characters."""
    shown = "".join(letter if letter.isprintable() else " " for letter in name)
    return Actor(" ".join(shown[:NAME_CHARACTERS_MAX].split()) or _UNKNOWN, door)


def calling_code() -> Actor:
    """Return the code that calls dueline: the module and the function, such as a task's.

    Called in another thread for a coroutine, it is the program.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  (public, but for its name)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in (_OWN, *_OF_THREADS):
            return actor_of(f"{module}.{frame.f_code.co_qualname}", "code")
        frame = frame.f_back
    return actor_of(_program(), "code")


def _program() -> str:
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    return getattr(spec, "name", None) or str(getattr(main, "__file__", None) or _UNKNOWN)
