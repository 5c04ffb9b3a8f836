"""Where an exception from outside harms nothing in a handler.

It may be raised when a loop of the application's own code begins its next turn, with no code of a
library and no clean-up between the handler and the loop. There, no call has just returned what
nobody releases yet: a lock that `acquire` took, a connection of a pool, the entry of a `with`.
"""

import dis
import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Final, NamedTuple

_WORKER = str(Path(__file__).parent) + os.sep
"""The folder of the code that calls handlers."""

_OWN = str(Path(__file__).parents[1]) + os.sep
"""The folder of dueline, which is a library here."""

_MANAGING: Final = frozenset({"__enter__", "__exit__", "__aenter__", "__aexit__", "__del__"})
"""Functions that take and release resources, in any code."""


def _folders_of_libraries() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    if hasattr(site, "getsitepackages"):  # some embedded interpreters have none
        folders += [*site.getsitepackages(), site.getusersitepackages()]
    return (*(str(Path(folder)) + os.sep for folder in folders), _OWN, "<frozen ")


_LIBRARIES = _folders_of_libraries()


class CodePoints(NamedTuple):
    """Places in the code of a function, as offsets of instructions.

    turns: where a loop begins its next turn. clean_up: those of `except` and `finally`.
    clean_up_lines: the lines of these, since `finally` is compiled twice.
    """

    turns: frozenset[int]
    clean_up: frozenset[int]
    clean_up_lines: frozenset[int]


@lru_cache(maxsize=1024)
def points_of(code: CodeType) -> CodePoints:
    """Return the places in a function's code."""
    steps = list(dis.get_instructions(code))
    lines = dict(_lines(code))
    handled = [place for place, step in enumerate(steps) if step.opname == "PUSH_EXC_INFO"]
    clean_up = _clean_up(steps, handled)
    # Not the end of a `with`: it has the line of its beginning, and is no code of its own.
    clauses = [place for place in handled if steps[place + 1].opname != "WITH_EXCEPT_START"]
    clean_up_lines = frozenset(
        line for step in _clean_up(steps, clauses) if (line := lines.get(step)) is not None
    )
    turns = {
        step.offset
        for step in steps
        if _is_turn(step)
        and step.offset not in clean_up
        and lines.get(step.offset) is not None
        and lines.get(step.argval) not in clean_up_lines  # else the loop is in a `finally`
    }
    return CodePoints(frozenset(turns), clean_up, clean_up_lines)


def _lines(code: CodeType) -> Iterator[tuple[int, int | None]]:
    for start, end, line in code.co_lines():
        for offset in range(start, end, 2):
            yield offset, line


def _is_turn(step: dis.Instruction) -> bool:
    """Return whether an instruction jumps back, and lets other threads run."""
    return "JUMP_BACKWARD" in step.opname and "NO_INTERRUPT" not in step.opname


def _clean_up(steps: list[dis.Instruction], starts: Iterable[int]) -> frozenset[int]:
    """Return the instructions that run while an exception is handled, from some places on."""
    place_of = {step.offset: place for place, step in enumerate(steps)}
    to_do = list(starts)
    offsets: set[int] = set()
    while to_do:
        place = to_do.pop()
        step = steps[place]
        if step.offset in offsets or step.opname == "POP_EXCEPT":
            continue
        offsets.add(step.offset)
        if "JUMP" in step.opname or step.opname in ("FOR_ITER", "SEND"):
            to_do.append(place_of.get(step.argval, place))
        is_last = step.opname in ("RERAISE", "RAISE_VARARGS", "RETURN_VALUE", "RETURN_CONST",
                                  "JUMP_FORWARD", "JUMP_BACKWARD", "INTERPRETER_EXIT")  # fmt: skip
        if not is_last and place + 1 < len(steps):
            to_do.append(place + 1)
    return frozenset(offsets)


def is_application(frame: FrameType, package: str) -> bool:
    """Return whether a frame runs the application's own code.

    Args:
        frame: The frame.
        package: Top-level package of the handler, which may be installed like a library.
    """
    file = frame.f_code.co_filename
    if not file.startswith(_LIBRARIES) and "-packages" + os.sep not in file:
        return True
    name = frame.f_globals.get("__name__")
    return isinstance(name, str) and name.partition(".")[0] == package


def is_worker(frame: FrameType) -> bool:
    """Return whether a frame is of the code that calls handlers."""
    return frame.f_code.co_filename.startswith(_WORKER)


def is_clean(frame: FrameType | None, package: str) -> bool:
    """Return whether an exception may leave a loop, seen from its frame, and the handler.

    Between the handler and the loop there is only code of the application, and none that cleans
    up. Outside of the handler there may be others, such as a decorator's.
    """
    is_loop, is_outside = True, False
    while frame is not None and not is_worker(frame):
        if frame.f_code.co_name in _MANAGING:
            return False
        if not is_application(frame, package):
            is_outside = True
        elif is_outside or (not is_loop and is_clean_up(frame)):
            return False
        is_loop = False
        frame = frame.f_back
    return frame is not None


def is_clean_up(frame: FrameType) -> bool:
    """Return whether a frame is in an `except` or `finally`."""
    points = points_of(frame.f_code)
    return frame.f_lasti in points.clean_up or frame.f_lineno in points.clean_up_lines


def place_in(thread: int | None) -> str:
    """Return where a thread is, such as `in wait, threading.py:324`."""
    frame = sys._current_frames().get(thread or 0)  # noqa: SLF001  (public, but for its name)
    if frame is None:
        return "nowhere"
    code = frame.f_code
    return f"in {code.co_name}, {Path(code.co_filename).name}:{frame.f_lineno}"


def loops_of(frame: FrameType | None, package: str) -> Iterator[FrameType]:
    """Yield the frames of the application's code, from the innermost to the worker's own."""
    while frame is not None and not is_worker(frame):
        if is_application(frame, package):
            yield frame
        frame = frame.f_back


def frames_of(coroutine: object) -> Iterator[FrameType]:
    """Yield the frames of a coroutine that waits, and of those that it waits for."""
    kind: str | None = "cr"
    while kind is not None:
        frame = getattr(coroutine, f"{kind}_frame", None)
        if isinstance(frame, FrameType):
            yield frame
        coroutine = getattr(coroutine, "gi_yieldfrom" if kind == "gi" else f"{kind}_await", None)
        kinds = (kind for kind in ("cr", "gi", "ag") if hasattr(coroutine, f"{kind}_frame"))
        kind = next(kinds, None)


def is_cleaning_up(coroutine: object) -> bool:
    """Return whether a coroutine that waits, or one that it waits for, cleans up."""
    return any(
        frame.f_code.co_name in _MANAGING or (not is_worker(frame) and is_clean_up(frame))
        for frame in frames_of(coroutine)
    )
