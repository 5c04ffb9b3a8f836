"""Runs tests on a copy of the package that holds a fault.

The first process imports what tests need but not the package. It forks a process for each fault,
which imports the package from a copy of `src` of its own.
"""

import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tools.planted_faults.faults import Fault
from tools.planted_faults.selection import IN_CHILDREN, ROOT

LIBRARIES = (
    "hypothesis", "apsw", "psycopg", "cassandra.cluster", "msgspec", "cronsim", "asyncio",
    "multiprocessing", "starlette.applications", "typer", "xdist", "pytest_timeout",
)  # fmt: skip

TEST_TIMEOUT_S = 60
"""Maximum duration of a test: with some faults a test never ends."""

FAULT_TIMEOUT_S = 900
"""Maximum duration of all tests of a fault."""

_IMPORT = "import"
"""What stands in a report for the name of a test if a file of tests cannot be imported."""


class Verdict(NamedTuple):
    """What became of a fault.

    Attributes:
      word: caught, survived, or unusable if tests cannot be imported with the fault.
      test: The test that failed; "timeout" or "exit" if none did.
    """

    word: str
    test: str
    took_s: float


class _Reports:
    """Limits the time of each test, and reports the one that failed.

    Args:
      report: Where the failing test is written.
    """

    def __init__(self, report: int) -> None:
        self._report = report

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Limit the time of each test."""
        for item in items:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Report that a file of tests cannot be imported."""
        if report.failed:
            os.write(self._report, _IMPORT.encode())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Report the test that failed."""
        if report.failed:
            late = " (timeout)" if "from pytest-timeout" in report.longreprtext else ""
            os.write(self._report, f"{report.nodeid}{late}".encode())


class Bench:
    """A copy of the package, and the process that runs tests on it.

    Args:
      sources: The source of each module that may get a fault.
    """

    def __init__(self, sources: Mapping[str, bytes]) -> None:
        self._copy = tempfile.TemporaryDirectory(prefix="planted-", ignore_cleanup_errors=True)
        self._folder = Path(self._copy.name)
        self._sources = sources
        shutil.copytree(ROOT / "src", self._folder / "src")
        self._changed_s = int(time.time())
        self._process = 0
        self._fault: Fault | None = None
        self._began_s = self._ends_s = 0.0
        self._report = 0

    @property
    def fault(self) -> Fault | None:
        """The fault whose tests run."""
        return self._fault

    def start(self, fault: Fault, files: Sequence[str]) -> None:
        """Plant a fault, and start the tests of files."""
        path = self._folder / "src" / "dueline" / fault.file
        self._write(path, fault.applied_to(self._sources[fault.file]))
        self._fault, self._began_s = fault, time.monotonic()
        self._ends_s = self._began_s + FAULT_TIMEOUT_S
        self._report, write = os.pipe()
        os.set_blocking(self._report, False)
        self._temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._process = os.fork()
        if not self._process:
            _run_tests(self._folder, self._temporary.name, files, write)
        os.close(write)

    def _write(self, path: Path, source: bytes) -> None:
        """Write a module; Python compiles it again if its time has changed."""
        path.write_bytes(source)
        self._changed_s += 1
        os.utime(path, (self._changed_s, self._changed_s))

    def poll(self) -> Verdict | None:
        """Return what became of the fault; None while its tests run."""
        assert self._fault is not None
        process, status = os.waitpid(self._process, os.WNOHANG)
        is_late = not process and time.monotonic() > self._ends_s
        if not process and not is_late:
            return None
        with suppress(ProcessLookupError):  # processes that tests started and left
            os.killpg(self._process, signal.SIGKILL)
        if is_late:
            os.waitpid(self._process, 0)
        test = ""
        with suppress(BlockingIOError):  # a process that a test left may have it open
            test = os.read(self._report, 4096).decode()
        os.close(self._report)
        self._temporary.cleanup()
        path = self._folder / "src" / "dueline" / self._fault.file
        self._write(path, self._sources[self._fault.file])
        self._fault = None
        took_s = round(time.monotonic() - self._began_s, 1)
        code = os.waitstatus_to_exitcode(status) if process else 0
        if is_late:
            return Verdict("caught", "timeout", took_s)
        if code in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
            return Verdict("survived", "", took_s)
        if test.startswith(_IMPORT):
            return Verdict("unusable", test, took_s)
        return Verdict("caught", test or "exit", took_s)


def import_libraries() -> None:
    """Import what tests need, but not the package."""
    for name in LIBRARIES:
        importlib.import_module(name)
    assert "dueline" not in sys.modules


def _run_tests(folder: Path, temporary: str, files: Sequence[str], report: int) -> None:
    """Run the tests in this process, until one fails; ends the process."""
    code: int = pytest.ExitCode.INTERNAL_ERROR
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in jobs with `&`
        output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(ROOT)
        source = str(folder / "src")
        sys.path.insert(0, source)
        os.environ["PYTHONPATH"] = source  # of the processes that tests start
        os.environ["PYTEST_DEBUG_TEMPROOT"] = temporary
        code = pytest.ExitCode.OK
        for some in (files[:2], files[2:4], files[4:9], files[9:]):  # to collect few, most often
            # What SQLite shows, the memory store shows sooner.
            mark = (
                "" if some[:1] == IN_CHILDREN[:1] else "not sqlite and not cassandra and not long"
            )
            if some and code in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
                code = pytest.main(
                    ["-q", "-x", "--tb=short", "-p", "no:cacheprovider", "-m", mark,
                     "-W", "ignore::pytest.PytestAssertRewriteWarning", *some],
                    plugins=[_Reports(report)],
                )  # fmt: skip
    except BaseException:  # noqa: BLE001  (told in the output)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(code))
