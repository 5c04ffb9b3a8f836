"""The positions of calls: one line of calls for each branch of a function."""

import sys
import threading
from typing import Any

from dueline.core.errors import BadInput
from dueline.durable.log import Path


def _here() -> tuple[int, int]:
    """Return the thread and the asyncio task that call this."""
    loaded: Any = sys.modules.get("asyncio.tasks")
    task = None
    if loaded is not None:
        try:
            task = loaded.current_task()
        except RuntimeError:  # there is no loop in this thread
            task = None
    return threading.get_ident(), id(task)


class Line:
    """The calls of one branch, in their order (rule D9).

    Attributes:
      path: Position of the last call.
      at_us: Time of the last record of the branch.
      draws: Number of random values since the last call.
      open: The call that has not ended; None without one.
      digest: Of the arguments of the open call; empty without one.
      unset: Number of states whose setting has not begun, since nothing awaits it.
    """

    def __init__(self, at_us: int, prefix: Path = ()) -> None:
        self._prefix = prefix
        self._count = 0
        self._owner = _here()
        self.at_us = at_us
        self.draws = 0
        self.open: str | None = None
        self.digest = ""
        self.unset = 0

    @property
    def path(self) -> Path:
        """Position of the last call."""
        return (*self._prefix, self._count)

    @property
    def next_path(self) -> Path:
        """Position of the call that is open, or of the next one."""
        return self.path if self.open is not None else (*self._prefix, self._count + 1)

    def take(self, name: str) -> Path:
        """Return the position of a call that begins.

        Raises: BadInput: it comes from another task or thread, or another call is open.
        """
        if _here() != self._owner:
            raise BadInput(
                f"The call of {name} comes from another task or thread than its function: its "
                "position would depend on chance.",
                hint="Make calls one after the other, or many at once with ctx.gather.",
            )
        self._expect_set(f"before the call of {name}")
        if self.open is not None:
            raise BadInput(
                f"The call of {name} begins while that of {self.open} has not ended.",
                hint="Await each call before the next one, or make many at once with ctx.gather.",
            )
        self._count += 1
        self.draws = 0
        self.digest = ""
        self.open = name
        return self.path

    def expect_ended(self) -> None:
        """Raise BadInput if the function returned and a call was never awaited."""
        if self.open is not None:
            raise BadInput(
                f"The function returned while the call of {self.open} has not ended.",
                hint="Await each call.",
            )
        self._expect_set("before the function returned")

    def _expect_set(self, when: str) -> None:
        if self.unset:
            raise BadInput(
                f"`ctx.state` was called and not awaited {when}: nothing was set.",
                hint="Write `await ctx.state(...)` in a coroutine function.",
            )

    def end(self) -> None:
        """Note that the open call has ended."""
        self.open, self.digest = None, ""
