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
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tools.planted_faults.faults import Fault

ROOT = Path(__file__).parent.parent.parent
LIBRARIES = (
    "hypothesis", "apsw", "psycopg", "cassandra.cluster", "msgspec", "cronsim", "asyncio",
    "multiprocessing", "starlette.applications", "typer", "xdist", "pytest_timeout",
)  # fmt: skip

TEST_TIMEOUT_S = 30
"""Maximum duration of a short test: with some faults a test never ends."""

SLOWER = 10
"""How many times longer a long test may take with the fault, on a busy machine."""


class Verdict(NamedTuple):
    """What became of a fault.

    Attributes:
      word: caught, survived, or untested (no test ran).
      test: The test that failed; "timeout" or "import" if none did.
    """

    word: str
    test: str
    took_s: float


class _Chosen:
    """Runs the chosen tests only, in their order.

    Args:
      durations_s: The tests and how long they take; or files, or tests with all parameters.
      report: Where the failing test is written.
    """

    def __init__(self, durations_s: Mapping[str, float], report: int) -> None:
        self._durations_s = durations_s
        self._places = {test: place for place, test in enumerate(durations_s)}
        self._report = report

    def _name(self, item: pytest.Item) -> str:
        """Return the test as it was chosen: with its parameters, without them, or by its file."""
        names = (item.nodeid, item.nodeid.partition("[")[0])
        chosen = (name for name in names if name in self._places)
        return next(chosen, item.nodeid.partition("::")[0])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Drop other tests."""
        config.hook.pytest_deselected(
            items=[item for item in items if self._name(item) not in self._places]
        )
        items[:] = [item for item in items if self._name(item) in self._places]
        items.sort(key=lambda item: self._places[self._name(item)])
        for item in items:
            timeout_s = SLOWER * self._durations_s[self._name(item)]
            item.add_marker(pytest.mark.timeout(max(TEST_TIMEOUT_S, timeout_s)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Report the test that failed."""
        if report.failed:
            os.write(self._report, report.nodeid.encode())


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

    def start(self, fault: Fault, durations_s: Mapping[str, float]) -> None:
        """Plant a fault, and start the tests whose durations are given."""
        path = self._folder / "src" / "dueline" / fault.file
        self._write(path, fault.applied_to(self._sources[fault.file]))
        self._fault, self._began_s = fault, time.monotonic()
        self._ends_s = self._began_s + 60 + SLOWER * sum(durations_s.values())
        self._report, write = os.pipe()
        os.set_blocking(self._report, False)
        self._temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._process = os.fork()
        if not self._process:
            _run_tests(self._folder, self._temporary.name, durations_s, write)
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
        if code == pytest.ExitCode.OK:
            return Verdict("survived", "", took_s)
        if code == pytest.ExitCode.NO_TESTS_COLLECTED:
            return Verdict("untested", "", took_s)
        return Verdict("caught", test or "import", took_s)


def import_libraries() -> None:
    """Import what tests need, but not the package."""
    for name in LIBRARIES:
        importlib.import_module(name)
    assert "dueline" not in sys.modules


def _run_tests(folder: Path, temporary: str, durations_s: Mapping[str, float], report: int) -> None:
    """Run the tests in this process, until one fails; ends the process."""
    code: int = pytest.ExitCode.INTERNAL_ERROR
    try:
        os.setsid()
        output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(ROOT)
        source = str(folder / "src")
        sys.path.insert(0, source)
        os.environ["PYTHONPATH"] = source  # of the processes that tests start
        os.environ["PYTEST_DEBUG_TEMPROOT"] = temporary
        files = list(dict.fromkeys(test.partition("::")[0] for test in durations_s))
        code = pytest.ExitCode.OK
        for some in (files[:1], files[1:3], files[3:8], files[8:]):  # to collect few, most often
            if some and code == pytest.ExitCode.OK:
                code = pytest.main(
                    ["-q", "-x", "--tb=short", "-p", "no:cacheprovider",
                     "-W", "ignore::pytest.PytestAssertRewriteWarning", *some],
                    plugins=[_Chosen(durations_s, report)],
                )  # fmt: skip
    except BaseException:  # noqa: BLE001  (told in the output)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(code))
