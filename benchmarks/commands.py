"""Processes of a benchmark: workers and producers of a checkout, and what they used."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
WAIT_S_MAX: Final = 180.0
POLL_S: Final = 0.01

Sample = Mapping[str, float]
"""What was measured once, by name, such as `per_s` and `cpu_us`."""


class Failed(Exception):
    """A process failed, or a job did not run in time."""


class Mark(NamedTuple):
    """When a job ran, and what its process had used of a processor by then."""

    at_ns: int
    cpu_ns: int


class Usage(NamedTuple):
    """What a process has used. cpu_s: with its children. rss_mb: its peak."""

    seconds: float
    cpu_s: float
    rss_mb: float


@dataclass(frozen=True, slots=True)
class Checkout:
    """A version of dueline: where it lies, and its interpreter."""

    root: Path
    python: Path

    @classmethod
    def at(cls, root: Path) -> "Checkout":
        """Return the checkout in a folder, with the interpreter of its .venv."""
        return cls(root.absolute(), root.absolute() / ".venv" / "bin" / "python")

    def dueline(self, *words: str) -> list[str]:
        """Return a command line of dueline."""
        return [str(self.python.parent / "dueline"), *words]


HERE: Final = Checkout(ROOT, Path(sys.executable))


@dataclass(frozen=True, slots=True)
class Place:
    """A folder that processes of a checkout run in, and their environment."""

    checkout: Checkout
    folder: Path
    settings: Mapping[str, str]

    def environment(self) -> dict[str, str]:
        """Return the environment; modules of benchmarks are those of this version."""
        path = {"PYTHONPATH": f"{ROOT}{os.pathsep}{self.folder}"}
        return {**os.environ, **path, **self.settings}

    def side(self, kind: str, command: str, *values: object) -> Sample:
        """Run a command of a side, and return what it measured."""
        found: dict[str, float] = json.loads(self.read(self.side_words(kind, command, *values)))
        return found

    def side_words(self, kind: str, command: str, *values: object) -> list[str]:
        """Return the command line of a side."""
        words = [str(self.checkout.python), "-m", "benchmarks.side", kind, command]
        return [*words, *map(str, values)]

    def read(self, words: Sequence[str]) -> str:
        """Run a command, and return what it printed.

        Raises: Failed: it failed.
        """
        done = subprocess.run(
            words, cwd=self.folder, env=self.environment(), capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        if done.returncode:
            raise Failed(f"{' '.join(words)}: {done.stdout[-500:]}{done.stderr[-2000:]}")
        return done.stdout

    def start(self, words: Sequence[str]) -> "subprocess.Popen[str]":
        """Start a command; its messages go to the file `log`."""
        with (self.folder / "log").open("a") as log:
            return subprocess.Popen(
                words, cwd=self.folder, env=self.environment(), stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip

    def run(self, words: Sequence[str], *, watch: bool = False) -> Usage:
        """Run a command to its end; with `watch` look at its memory meanwhile.

        Raises: Failed: it failed.
        """
        began = time.perf_counter()
        process = self.start(words)
        rss_mb = 0.0
        while watch:
            ended, status, used = os.wait4(process.pid, os.WNOHANG)
            if ended:
                break
            rss_mb = max(rss_mb, peak_mb(process.pid))
            time.sleep(2 * POLL_S)
        else:
            _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()
        if process.returncode:
            log = (self.folder / "log").read_text()
            raise Failed(f"{' '.join(words)} exited with {process.returncode}: {log[-2000:]}")
        cpu_s = used.ru_utime + used.ru_stime
        return Usage(time.perf_counter() - began, cpu_s, rss_mb)

    @contextmanager
    def running(self, words: Sequence[str]) -> Iterator[int]:
        """Run a command while the block runs, and yield its process id."""
        process = self.start(words)
        try:
            yield process.pid
        finally:
            process.send_signal(signal.SIGINT if "huey" in words[2] else signal.SIGTERM)
            try:
                process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()

    def mark(self, name: str, *, every_s: float = POLL_S) -> Mark:
        """Wait for a mark. every_s: interval of looks.

        Raises: Failed: it did not come.
        """
        path = self.folder / name
        give_up_s = time.monotonic() + WAIT_S_MAX
        while not path.exists():
            if time.monotonic() > give_up_s:
                log = self.folder / "log"
                raise Failed(f"No job wrote {path}. {log.read_text() if log.exists() else ''}")
            time.sleep(every_s)
        return Mark(*map(int, path.read_text().split()))

    def starts(self, count: int) -> list[float]:
        """Wait until jobs have noted how late they started; in milliseconds, in their order.

        Raises: Failed: jobs are missing.
        """
        path = self.folder / "starts"
        give_up_s = time.monotonic() + WAIT_S_MAX
        while not path.exists() or len(lines := path.read_text().split()) < count:
            if time.monotonic() > give_up_s:
                raise Failed(f"{path} has fewer than {count} lines.")
            time.sleep(5 * POLL_S)
        return [int(line) / 1e6 for line in lines]


def peak_mb(process_id: int) -> float:
    """Return the peak of a process's resident memory; 0 if it is no more."""
    try:
        status = Path(f"/proc/{process_id}/status").read_text()
    except OSError:
        return 0.0
    found = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(found[0].split()[1]) / 1024 if found else 0.0


def cpu_s(process_id: int) -> float:
    """Return the time of the processor that a running process has used."""
    clock = (~process_id << 3) | 2  # the kernel's number of that clock, see clock_getcpuclockid(3)
    return time.clock_gettime(clock)


def percentile(values: Sequence[float], part: float) -> float:
    """Return the value below which this part of the values lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]
