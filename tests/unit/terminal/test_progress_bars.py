"""Progress of a batch: a bar on a terminal or in a notebook, lines elsewhere."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

import pytest

from dueline import Dueline
from dueline.api.batch_progress import LINE_EVERY_US, Pace, shown, text_of
from dueline.api.batch_views import BatchCounts
from dueline.core.clock import SECOND_US
from dueline.terminal.progress_bars import bar, can_draw
from tests.harness.clocks import HandClock


class Terminal(io.StringIO):
    """A terminal that keeps what is written."""

    def isatty(self) -> bool:
        return True


@contextmanager
def stderr_is(stream: io.StringIO, term: str = "xterm", columns: int = 100) -> Iterator[None]:
    """Write to a stream in place of stderr, on a terminal of a type and width.

    It is no fixture: pytest sets stderr again after those.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            patch.delenv(name, raising=False)
        patch.setenv("TERM", term)
        patch.setenv("COLUMNS", str(columns))
        patch.setattr(sys, "stderr", stream)
        yield


def lines(clock: HandClock) -> list[str]:
    """Return what is written while 1,200 jobs end in 24 s, and then the others."""
    written = io.StringIO()
    with stderr_is(written), shown("photos", clock) as show:
        for second in range(25):
            show(BatchCounts(items=2000, done=50 * second))
            clock.advance(1)
        show(BatchCounts(items=2000, done=1990, dead=10))
    return written.getvalue().splitlines()


def test_text_names_what_ended_the_rate_and_the_time_left() -> None:
    counts = BatchCounts(items=12_000, done=1500, dead=20, cancelled=3, expired=2, lost=1)
    assert text_of(counts, 100.0) == (
        "1,526/12,000 ended, 1,500 done, 20 dead, 3 cancelled, 2 expired, 1 lost, 100/s, 1m44s left"
    )


def test_text_without_a_rate_promises_no_time() -> None:
    assert text_of(BatchCounts(items=3), 0.0) == "0/3 ended, 0/s"
    assert text_of(BatchCounts(items=3, done=3), 7.0) == "3/3 ended, 3 done"
    assert text_of(BatchCounts(), 0.0) == "0/0 ended"


def test_rate_is_that_of_the_last_seconds() -> None:
    clock = HandClock()
    pace = Pace(clock)
    assert pace.note(0) == 0.0
    clock.advance(100)
    assert pace.note(1000) == 10.0
    for ended in (1500, 2000, 2500, 3000, 3500, 4000):
        clock.advance(1)
        rate = pace.note(ended)
    assert rate == 500.0


def test_lines_come_each_ten_seconds_and_at_the_end() -> None:
    assert LINE_EVERY_US == 10 * SECOND_US
    assert lines(HandClock()) == [
        "photos: 500/2,000 ended, 500 done, 50/s, 30s left",
        "photos: 1,000/2,000 ended, 1,000 done, 50/s, 20s left",
        "photos: 2,000/2,000 ended, 1,990 done, 10 dead",
    ]


def test_a_terminal_shows_a_bar_that_stays() -> None:
    terminal = Terminal()
    clock = HandClock()
    with stderr_is(terminal), shown("photos", clock) as show:
        show(BatchCounts(items=2000))
        clock.advance(1)
        show(BatchCounts(items=2000, done=1000))
        clock.advance(1)
        show(BatchCounts(items=2000, done=1999, dead=1))
    written = terminal.getvalue()
    assert "\x1b[?25l" in written  # the cursor is hidden while the bar moves, and shown again
    assert "\x1b[?25h" in written
    *_, last = written.rsplit("\r", 1)
    assert "photos" in last
    assert "━" in last
    assert "2,000/2,000 ended, 1,999 done, 1 dead" in last


def test_a_name_with_brackets_is_no_markup() -> None:
    terminal = Terminal()
    with stderr_is(terminal), shown("[/] a[red]b", HandClock()) as show:
        show(BatchCounts(items=1, done=1))
    with stderr_is(terminal), bar("[/] c[red]d", 2) as count:
        count(3)
    assert "[/] a[red]b" in terminal.getvalue()
    assert "[/] c[red]d" in terminal.getvalue()


def test_a_long_name_leaves_room_for_the_text() -> None:
    terminal = Terminal()
    with stderr_is(terminal), shown("x" * 200, HandClock()) as show:
        show(BatchCounts(items=1, done=1))
    assert "1/1 ended, 1 done" in terminal.getvalue()


def test_text_of_a_large_batch_fits_into_80_columns() -> None:
    terminal = Terminal()
    with stderr_is(terminal, columns=80), shown("photos", clock := HandClock()) as show:
        show(BatchCounts(items=1_000_000, done=481_000))
        clock.advance(1)
        show(BatchCounts(items=1_000_000, done=499_000, dead=1000))
    assert "499,000 done, 1,000 dead, 19,000/s, 26s left" in terminal.getvalue()


def test_a_terminal_without_a_cursor_has_lines() -> None:
    terminal = Terminal()
    with stderr_is(terminal, "dumb"), shown("photos", HandClock()) as show:
        show(BatchCounts(items=1, done=1))
    assert terminal.getvalue() == "photos: 1/1 ended, 1 done\n"


def test_a_notebook_draws_only_with_what_can_update_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = ModuleType("IPython")
    vars(kernel)["get_ipython"] = lambda: SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    assert not can_draw()  # rich would show a warning in place of the bar
    widgets = ModuleType("ipywidgets")
    widgets.__spec__ = SimpleNamespace()  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "ipywidgets", widgets)
    assert can_draw()


def test_wait_shows_progress_unless_it_is_not_wanted() -> None:
    terminal = Terminal()
    app = Dueline("memory://")

    @app.task(name="double")
    def double(number: int) -> int:
        return 2 * number

    batch = double.map(range(3), name="numbers")
    app.run_worker(burst=True)
    with stderr_is(terminal):
        batch.wait(timeout=60, progress=False)
        assert not terminal.getvalue()
        batch.wait(timeout=60)
    assert "3/3 ended, 3 done" in terminal.getvalue()
