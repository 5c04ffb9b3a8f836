"""`dueline top`."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest
from rich.console import Console

from dueline.admin.throughput import Throughput
from dueline.admin.watch import Picture
from dueline.cli.screen import picture_of
from dueline.coordination.worker_registry import Presence
from dueline.core.clock import SECOND_US
from dueline.jobs.counts import Counts
from tests.harness.clocks import NOW_US
from tests.harness.shell import WAIT_S, Shell


def picture(*, queues: int, workers: int) -> Picture:
    """Make a picture of so many queues and workers."""
    return Picture(
        NOW_US,
        Throughput(60 * SECOND_US, 900, 600, 30, 1000, 2 * SECOND_US),
        [
            Counts(f"a-queue-of-a-name-{number}", number, 1, 2, 3, 0, 4, NOW_US - SECOND_US, 1,
                   is_capped=False)
            for number in range(queues)
        ],
        [
            Presence(f"host-of-some-name:{number}:abcd", ("q",) * 30, (), 16, number, 0, NOW_US, 0)
            for number in range(workers)
        ],
    )  # fmt: skip


def drawn(shown: Picture, *, height: int | None, width: int = 80) -> list[str]:
    """Draw a picture; answer its lines."""
    console = Console(width=width, force_terminal=False, color_system=None)
    with console.capture() as capture:
        console.print(picture_of(shown, "sqlite:///jobs.db", height=height))
    return [line.rstrip() for line in capture.get().splitlines()]


@pytest.mark.parametrize(("queues", "workers"), [(0, 0), (1, 1), (40, 1), (1, 40), (40, 40)])
def test_a_picture_fits_a_small_terminal(queues: int, workers: int) -> None:
    lines = drawn(picture(queues=queues, workers=workers), height=24)
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert lines[0] == "dueline  sqlite:///jobs.db"
    assert lines[1].startswith("10.0 done/s   30 failed/min   start latency p50 1ms  p99 2s   ")
    assert "q: quit" in lines


def test_what_does_not_fit_is_told_and_the_busiest_are_shown() -> None:
    text = "\n".join(drawn(picture(queues=40, workers=40), height=24))
    assert "a-queue-of-a-name-39" in text
    assert "a-queue-of-a-name-0" not in text
    assert "more queues" in text
    assert "more workers" in text


def test_without_a_screen_all_is_shown() -> None:
    lines = drawn(picture(queues=40, workers=3), height=None)
    assert sum(line.startswith("a-queue") for line in lines) == 40
    assert not any("more" in line for line in lines)


def test_a_pipe_gets_one_picture(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1")
    shell.work()
    shell.enqueue("tasks.add", "1")
    answer = shell.app("top")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0] == "dueline  sqlite:///jobs.db"
    assert " 0 failed/min   start latency p50 " in lines[1]
    assert any(line.split()[:3] == ["default", "1", "0"] for line in lines)
    assert "\x1b" not in answer.out


@pytest.mark.long
def test_q_ends_it_on_a_terminal(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    words = [sys.executable, "-m", "dueline", "--app", "tasks:app", "top"]
    process = subprocess.Popen(
        words, cwd=shell.folder, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE,
        env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    try:
        seen = b""
        while b"q: quit" not in seen:
            seen += os.read(ours, 65536)
        assert b"default" in seen
        os.write(ours, b"q")
        while process.poll() is None:
            os.read(ours, 65536)
    except OSError:  # the terminal is gone with the process
        pass
    finally:
        _, err = process.communicate(timeout=WAIT_S)
        os.close(ours)
    assert (process.returncode, err) == (0, b"")
