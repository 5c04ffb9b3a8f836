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
from collections.abc import Generator, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tools.planted_faults.faults import Fault
from tools.planted_faults.selection import file_of
from tools.planted_faults.suite import OPTIONS, ROOT, TEST_TIMEOUT_S, Measured

LIBRARIES = (
    "hypothesis", "apsw", "psycopg", "cassandra.cluster", "msgspec", "cronsim", "asyncio",
    "multiprocessing", "starlette.applications", "typer", "xdist", "pytest_timeout",
)  # fmt: skip

SPARE_S = 600
LOAD = 20
"""A test, and all tests of a fault, may take LOAD times their processor time, and TEST_TIMEOUT_S or
SPARE_S more: as long as a busy machine may need.
"""

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
    """Chooses tests, limits the time of each, and reports the one that failed.

    Args:
      tests: The tests to run.
      report: Where the failing test is written.
    """

    def __init__(self, tests: Mapping[str, Measured], report: int) -> None:
        self._tests = tests
        self._report = report

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out other tests; limit the time of each."""
        items[:] = [item for item in items if item.nodeid in self._tests]
        for item in items:
            limit_s = TEST_TIMEOUT_S + LOAD * self._tests[item.nodeid].seconds
            item.add_marker(pytest.mark.timeout(limit_s))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Report that a file of tests cannot be imported."""
        if report.failed:
            os.write(self._report, f"{_IMPORT}\n".encode())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Report the test that failed."""
        if report.failed:
            os.write(self._report, f"{report.nodeid}\n".encode())


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

    def run(self, fault: Fault, tests: Mapping[str, Measured]) -> Generator[None, None, Verdict]:
        """Run tests until one fails: among others, by itself, and not without the fault.

        Yields while they run. A test that fails by chance is left out, and the others go on.
        """
        began_s = time.monotonic()
        left = dict(tests)
        while True:
            verdict = yield from self._run(fault, left)
            if verdict.test in left:
                alone = {verdict.test: left.pop(verdict.test)}
                again = yield from self._run(fault, alone)
                sound = yield from self._run(None, alone)
                if again.word == "survived" or sound.word != "survived":
                    continue
            return verdict._replace(took_s=round(time.monotonic() - began_s, 1))

    def _run(
        self, fault: Fault | None, tests: Mapping[str, Measured]
    ) -> Generator[None, None, Verdict]:
        """Run tests until one fails, with a fault or without any."""
        if fault is not None:
            self._write(fault.file, fault.applied_to(self._sources[fault.file]))
        report, write = os.pipe()
        os.set_blocking(report, False)
        ends_s = time.monotonic() + SPARE_S + LOAD * sum(test.seconds for test in tests.values())
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
            child = os.fork()
            if not child:
                _run_tests(self._folder, temporary, tests, write)
            os.close(write)
            ended = status = 0
            while not ended and time.monotonic() < ends_s:
                yield
                ended, status = os.waitpid(child, os.WNOHANG)
            with suppress(ProcessLookupError):  # processes that tests started and left
                os.killpg(child, signal.SIGKILL)
            if not ended:
                os.waitpid(child, 0)
        lines = b""
        with suppress(BlockingIOError):  # a process that a test left may have it open
            lines = os.read(report, 4096)
        os.close(report)
        if fault is not None:
            self._write(fault.file, self._sources[fault.file])
        test = lines.decode().partition("\n")[0]
        if not ended:
            return Verdict("caught", "timeout", 0)
        code = os.waitstatus_to_exitcode(status)
        # What a failed test leaves may also end pytest with an error of its own.
        if not test and code in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
            return Verdict("survived", "", 0)
        return Verdict("unusable" if test == _IMPORT else "caught", test or "exit", 0)

    def _write(self, file: str, source: bytes) -> None:
        """Write a module; Python compiles it again if its time has changed."""
        path = self._folder / "src" / "dueline" / file
        path.write_bytes(source)
        self._changed_s += 1
        os.utime(path, (self._changed_s, self._changed_s))


def import_libraries() -> None:
    """Import what tests need, but not the package."""
    for name in LIBRARIES:
        importlib.import_module(name)
    assert "dueline" not in sys.modules


def _run_tests(folder: Path, temporary: str, tests: Mapping[str, Measured], report: int) -> None:
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
        files = list(dict.fromkeys(map(file_of, tests)))
        for first, end in pairwise([0, 2, 5, 15, 40, max(41, len(files))]):  # most often few
            if files[first:end] and code in {
                pytest.ExitCode.OK,
                pytest.ExitCode.NO_TESTS_COLLECTED,
            }:
                code = pytest.main(
                    [*OPTIONS, "-x", *files[first:end]], plugins=[_Reports(tests, report)]
                )
    except BaseException:  # noqa: BLE001  (told in the output)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(code))
