"""Progress bars, on stderr."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar while the block runs, on a terminal only.

    Yields: a function to call with the number done so far; a total that is too small grows.
    """
    if not total or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415  (slow to load, and seldom needed)
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        shown = progress.add_task(title, total=total, rate="")

        def show(done: int) -> None:
            task = progress.tasks[0]
            most = max(task.total or 0, done)
            speed = f"{task.speed:,.0f}/s" if task.speed else ""
            progress.update(shown, completed=done, total=most, rate=speed)

        yield show
