"""Progress bars, on stderr."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

_TITLE_WIDTH: Final = 30
"""Maximum width of a title beside a text, in characters."""


def can_draw() -> bool:
    """Return whether a bar can be drawn: on a terminal, or in a notebook that has ipywidgets."""
    if sys.stderr.isatty():
        return os.environ.get("TERM") != "dumb"
    return _is_in_notebook() and find_spec("ipywidgets") is not None


def _is_in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in getattr(shell, "config", {})


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
        TextColumn("{task.description}", markup=False),
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


@contextmanager
def text_bar(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """Show a progress bar with a text while the block runs; the last one stays.

    Yields: a function to call with the number done so far, the total, and the text.
    """
    from rich.console import Console  # noqa: PLC0415  (slow to load, and seldom needed)
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415
    from rich.table import Column  # noqa: PLC0415

    # A title may hold brackets, which are no markup. The bar has what the text leaves of the line.
    title_column = Column(no_wrap=True, max_width=_TITLE_WIDTH)
    columns = (
        TextColumn("{task.description}", markup=False, table_column=title_column),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[text]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        shown = progress.add_task(title, text="")

        def show(done: int, total: int, text: str) -> None:
            progress.update(shown, completed=done, total=total, text=text)

        yield show
