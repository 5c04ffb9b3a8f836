"""A pytest plugin that records which lines each test runs: `-p tools.planted_faults.test_lines`.

Each process of the run writes a file in the folder DUELINE_TEST_LINES: the tests that passed with
their durations, and for each file of PACKAGES the numbers of the tests that ran each line.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest
from hypothesis import settings

PROFILE = "lines"
"""Hypothesis profile of the recording: a few examples run the lines that many run."""

settings.register_profile(PROFILE, max_examples=4, derandomize=True, deadline=None)

VARIABLE = "DUELINE_TEST_LINES"
"""Names the folder of the results."""

SOURCE = Path(__file__).parent.parent.parent / "src" / "dueline"
PACKAGES = ("jobs", "limits", "schedules", "stores/postgres", "streams", "worker", "workflows")


class LineRecorder:
    """Records the lines of each test."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = folder / f"{name}.json"
        self._durations_s: dict[str, float] = {}
        self._failed: set[str] = set()
        self._coverage = coverage.Coverage(
            data_file=None,
            config_file=False,
            include=[f"{SOURCE}/{package}/*" for package in PACKAGES],
        )
        self._coverage.start()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Trace the tests whose coverage is not measured otherwise, too."""
        for item in items:
            item.own_markers[:] = [mark for mark in item.own_markers if mark.name != "no_cover"]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        """Record what runs from here on for this test."""
        self._coverage.switch_context(item.nodeid)
        result = yield
        self._coverage.switch_context("")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how long a test took, and whether it passed."""
        before_s = self._durations_s.get(report.nodeid, 0.0)
        self._durations_s[report.nodeid] = before_s + report.duration
        if not report.passed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write what was recorded."""
        self._coverage.stop()
        data = self._coverage.get_data()
        tests = [test for test in self._durations_s if test not in self._failed]
        numbers = {test: number for number, test in enumerate(tests)}
        files = {
            str(Path(file).relative_to(SOURCE)): {
                line: sorted(numbers[test] for test in names if test in numbers)
                for line, names in data.contexts_by_lineno(file).items()
            }
            for file in sorted(data.measured_files())
        }
        durations_s = [(test, round(self._durations_s[test], 3)) for test in tests]
        self._file.write_text(json.dumps({"tests": durations_s, "files": files}), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Record in each process that runs tests."""
    name = os.environ.get("PYTEST_XDIST_WORKER")
    if name is None and getattr(config.option, "numprocesses", None):
        return  # this process only distributes the tests
    folder = Path(os.environ[VARIABLE])
    folder.mkdir(parents=True, exist_ok=True)
    config.pluginmanager.register(
        LineRecorder(folder, f"{name or 'main'}-{os.getpid()}"), "test-lines"
    )
