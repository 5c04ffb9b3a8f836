"""The answers to the questions of `pipeline ask`, as tiles of a report."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dueline.core.clock import SECOND_US
from dueline.core.durations import span_text
from dueline.spark.pipeline.report_page import Tile

Lines = Sequence[Mapping[str, Any]]
ERROR_MAX: Final = 60


def _failures(lines: Lines) -> Tile:
    if not lines:
        return Tile("Failing task", "none", "no attempt failed", is_good=True)
    worst = lines[0]
    words = f"{worst['failed']:,} of {worst['attempts']:,} attempts in {worst['queue']} failed"
    if worst["error"]:
        words += f"; most: {worst['error'][:ERROR_MAX]}"
    return Tile("Failing task", worst["task"], words, is_good=None)


def _waiting(lines: Lines) -> Tile:
    if not lines:
        return Tile("Waiting tenant", "unknown", "nothing was started", is_good=None)
    worst = lines[0]
    who = f"{worst['tenant'] or 'no tenant'} in {worst['queue']}"
    words = (
        f"{_seconds(worst['mean_s'])} on average, {_seconds(worst['longest_s'])} at most;"
        f" {worst['share']:.0%} of the queue's waiting"
    )
    return Tile("Waiting tenant", who, words, is_good=None)


def _costs(lines: Lines) -> Tile:
    if not lines:
        return Tile("Handler time", "unknown", "no handler ended", is_good=None)
    ran_s, failed_s = (sum(line[name] for line in lines) for name in ("run_s", "failed_s"))
    worst = lines[0]
    words = (
        f"{_seconds(failed_s)} of it failed; most: {worst['task']} for"
        f" {worst['tenant'] or 'no tenant'}, {_seconds(worst['run_s'])}"
    )
    return Tile("Handler time", _seconds(ran_s), words, is_good=None)


def _seconds(seconds: float) -> str:
    """Return a duration: with tenths of seconds below a minute, in whole seconds from there on."""
    if abs(seconds) < 60:  # noqa: PLR2004
        return f"{seconds:.1f} s"
    return span_text(round(seconds) * SECOND_US)


ANSWERS: Final[Mapping[str, Callable[[Lines], Tile]]] = {
    "failures": _failures, "waiting": _waiting, "costs": _costs,
}  # fmt: skip
"""What makes a tile of the answer to each question."""
