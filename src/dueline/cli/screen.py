"""The live screen of `dueline top`."""

import os
import select
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dueline.admin.watch import Picture, Watch
from dueline.cli.errors import Exit
from dueline.coordination.worker_registry import Presence
from dueline.core.durations import distance_text, span_text
from dueline.core.engine import Engine
from dueline.core.text import printable
from dueline.jobs.counts import Counts

HEIGHT_MIN = 12
WARNINGS_MAX = 5
"""Maximum number of alerts on a screen of limited height."""

_FIXED_LINES = 7
"""Title, rates, three blank lines or headers, and the last line."""


def watch(engine: Engine, title: str, every_s: float) -> Exit:
    """Refresh the screen until the user quits; print it once without a terminal."""
    watched = Watch(engine)
    console = Console(highlight=False)
    if not sys.stdout.isatty() or find_spec("termios") is None:
        console.width = max(console.width, 100)
        console.print(picture_of(watched.look(), title, height=None))
        return Exit.DONE
    try:
        with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                shown = picture_of(watched.look(), title, height=console.height)
                live.update(shown, refresh=True)
                if pressed(every_s) in ("q", "Q"):
                    return Exit.DONE
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


class _Pressed:
    """Waits for a key press."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __call__(self, timeout_s: float) -> str:
        ready, _, _ = select.select([self._number], [], [], timeout_s)
        return os.read(self._number, 1).decode(errors="replace") if ready else ""


@contextmanager
def _keys() -> Iterator[_Pressed]:
    """Read single key presses without echo while the block runs."""
    import termios  # noqa: PLC0415  (not on every system)
    import tty  # noqa: PLC0415

    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setcbreak(number)
    try:
        yield _Pressed(number)
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def picture_of(picture: Picture, title: str, *, height: int | None) -> Group:
    """Return the screen for its data.

    Args: height: lines of the screen; None for no limit.
    """
    now_us, rates, counts, workers, *_ = picture
    warnings = _warnings(picture)[: None if height is None else WARNINGS_MAX]
    room = None if height is None else height - len(warnings)
    queue_lines, worker_lines = _shares(len(counts), len(workers), room)
    late = ["-" if us is None else span_text(us) for us in (rates.late_p50_us, rates.late_p99_us)]
    busiest = sorted(counts, key=lambda count: (-count.ready, -count.running, count.queue))
    backlog = sum(count.ready for count in counts)
    return Group(
        Text(f"dueline  {printable(title)}", style="bold", no_wrap=True, overflow="ellipsis"),
        Text(
            f"{rates.per_s():,.1f} done/s   {rates.failed} failed/min   start latency p50 "
            f"{late[0]}  p99 {late[1]}   {backlog:,} ready   "
            f"{sum(worker.held for worker in workers)}/"
            f"{sum(worker.slots for worker in workers)} slots",
            no_wrap=True,
            overflow="ellipsis",
        ),
        *warnings,
        Text(""),
        _queues(busiest[:queue_lines], now_us, picture.paused),
        _rest(len(counts) - queue_lines, "queues"),
        _workers(sorted(workers, key=lambda worker: -worker.held)[:worker_lines], now_us),
        _rest(len(workers) - worker_lines, "workers"),
        Text("q: quit" if height is not None else "", style="dim"),
    )


def _warnings(picture: Picture) -> list[Text]:
    """Return a line for each alert, and for what no worker can run."""
    lines = [
        f"{alert.condition.queue or alert.condition.kind}: {alert.condition.sentence} "
        f"For {span_text(max(0, picture.now_us - alert.since_us), units=1)}."
        for alert in picture.alerts
    ]
    lines += [f"{queue}: {text}" for queue, texts in picture.unknown.items() for text in texts]
    return [
        Text(printable(line), style="bold red", no_wrap=True, overflow="ellipsis") for line in lines
    ]


def _shares(queues: int, workers: int, height: int | None) -> tuple[int, int]:
    """Split the lines of the screen between queues and workers."""
    if height is None:
        return queues, workers
    room = max(HEIGHT_MIN, height) - _FIXED_LINES - 2
    for_workers = max(min(workers, room // 3), min(workers, room - queues))
    return min(queues, room - for_workers), for_workers


def _rest(hidden: int, what: str) -> Text:
    return Text(f"... and {hidden} more {what}" if hidden > 0 else "", style="dim")


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for place, head in enumerate(heads):
        table.add_column(
            head,
            justify="left" if place == 0 else "right",
            no_wrap=True,
            overflow="ellipsis",
            ratio=None,
        )
    return table


def _queues(counts: Sequence[Counts], now_us: int, paused: Collection[str]) -> Table:
    table = _table(
        "QUEUE", "READY", "RUNNING", "SCHEDULED", "RETRYING", "DEAD", "OLDEST", "WORKERS"
    )
    for count in counts:
        oldest, is_paused = count.oldest_ready_us, count.queue in paused
        style = "yellow" if is_paused or (count.ready and not count.workers) else ""
        table.add_row(
            Text(f"{count.queue}{' (paused)' * is_paused}", style=style),
            f"{count.ready:,}{'+' if count.is_capped else ''}",
            f"{count.running:,}",
            f"{count.scheduled:,}",
            f"{count.retrying:,}",
            Text(f"{count.dead:,}", style="red" if count.dead else ""),
            "" if oldest is None else span_text(now_us - oldest, units=1),
            str(count.workers),
        )
    return table


def _workers(workers: Sequence[Presence], now_us: int) -> Table:
    table = _table("WORKER", "HELD", "SLOTS", "HEARTBEAT", "QUEUES")
    for worker in workers:
        beat = distance_text(worker.beat_us, now_us, units=1)
        names = printable(", ".join(worker.queues))
        table.add_row(printable(worker.worker), str(worker.held), str(worker.slots), beat, names)
    return table
