"""Measures the tests without any fault: which pass, how long they take, which functions they run.

The suite is all quick tests of tests/unit and tests/stores on memory, SQLite and PostgreSQL, and
those of child processes. A test that fails without a fault proves nothing, so it is left out.
`.cache/planted/suite.json` keeps the measurements; a file of tests is measured again when it
changes, and all of them when the file is deleted.
"""

import ast
import json
import os
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from coverage import Coverage

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src" / "dueline"
CACHE = ROOT / ".cache" / "planted"
STORED = CACHE / "suite.json"
PACKAGES = ("jobs", "limits", "schedules", "stores/postgres", "streams", "worker", "workflows")
"""The packages that get faults."""

FOLDERS = (
    "unit/**",
    "stores",
    "stores/memory",
    "stores/sqlite",
    "stores/postgres",
    "integration/transactions",
    "integration/wakeups",
)
IN_CHILDREN = [f"tests/integration/failures/test_{n}.py" for n in ("boards", "crashes", "reports")]
"""Tests of the worker's code that only child processes run."""

LEFT_OUT = {"spark", "benchmarks", "tools", "typing"}
MARKS_LEFT_OUT = {"cassandra", "mutants", "spark"}
QUICK_S = 10
"""Maximum processor time of a test, while it is measured."""

TEST_TIMEOUT_S = 120
"""Maximum duration of a test besides its work: with some faults a test never ends."""

OPTIONS = ["-q", "--tb=short", "-p", "no:cacheprovider", "-W",
           "ignore::pytest.PytestAssertRewriteWarning"]  # fmt: skip
_STARTS = {"os.fork", "os.posix_spawn", "subprocess.Popen"}


class Measured(NamedTuple):
    """A test that passes without a fault.

    Attributes:
      seconds: Its processor time, with that of the processes that it started.
      functions: What it runs, as "FILE FUNCTION".
      is_opaque: It runs more than that: it starts processes, or it is not traced.
    """

    seconds: float
    functions: frozenset[str]
    is_opaque: bool


def files() -> list[str]:
    """Return the files of tests."""
    paths = {path for folder in FOLDERS for path in (ROOT / "tests").glob(f"{folder}/test_*.py")}
    kept = [path.relative_to(ROOT) for path in paths if not LEFT_OUT & set(path.parts)]
    return [*sorted(map(str, kept)), *IN_CHILDREN]


def measured(processes: int) -> dict[str, Measured]:
    """Return the tests by their names; measure those whose files have changed."""
    known = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    digests = {file: sha256((ROOT / file).read_bytes()).hexdigest() for file in files()}
    stored = {file: known[file] for file in digests if file in known}
    changed = [file for file in digests if stored.get(file, {}).get("digest") != digests[file]]
    CACHE.mkdir(parents=True, exist_ok=True)
    parts = [(CACHE / f"part-{n}.json", changed[n::processes]) for n in range(processes)]
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", __spec__.name, str(path), *part],
            cwd=ROOT,
            start_new_session=True,
        )
        for path, part in parts
        if part
    ]
    for run, (path, part) in zip(runs, parts, strict=False):
        run.wait()
        tests = json.loads(path.read_text(encoding="utf-8"))
        path.unlink()
        for file in part:
            stored[file] = {"digest": digests[file], "tests": tests.get(file, {})}
    STORED.write_text(json.dumps(stored), encoding="utf-8")
    return {
        name: Measured(seconds, frozenset(functions), is_opaque)
        for of_file in stored.values()
        for name, (seconds, functions, is_opaque) in of_file["tests"].items()
        if seconds <= QUICK_S
    }


def functions_of(source: str) -> Iterator[tuple[str, int, int]]:
    """Yield the functions of a module with the first and the last line of their bodies."""

    def visit(node: ast.AST, scope: tuple[str, ...]) -> Iterator[tuple[str, int, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                inner = (*scope, child.name)
                if not isinstance(child, ast.ClassDef):
                    yield ".".join(inner), child.body[0].lineno, child.end_lineno or 0
                yield from visit(child, inner)
            else:
                yield from visit(child, scope)

    yield from visit(ast.parse(source), ())


class _Meter:
    """Notes what each test takes and runs, and which ones fail."""

    def __init__(self, tracer: Coverage | None) -> None:
        self.seconds: dict[str, float] = {}
        self.opaque: set[str] = set()
        self.failed: set[str] = set()
        self._skipped: set[str] = set()
        self._tracer = tracer
        self._tracers = sys.gettrace(), threading.gettrace()
        self._current, self._used_s = "", 0.0
        sys.addaudithook(self._on_event)

    def _on_event(self, event: str, _: object) -> None:
        if event in _STARTS:
            self.opaque.add(self._current)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out tests on Cassandra and long ones; limit the time of the others."""
        items[:] = [item for item in items if _is_wanted(item)]
        for item in items:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note lines under the name of the test that runs."""
        self._current, self._used_s = nodeid, sum(os.times()[:4])
        if self._tracer is not None:
            self._tracer.switch_context(nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, object, object]:
        """Trace tests that are left out of the coverage of CI, too, but not random examples."""
        is_random = getattr(pyfuncitem.obj, "is_hypothesis_test", False)
        if is_random or "untraced" in pyfuncitem.fixturenames:
            self.opaque.add(self._current)
        else:
            sys.settrace(self._tracers[0])
            threading.settrace(self._tracers[1])
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the processor time of a test, and whether it passed."""
        self.seconds[report.nodeid] = sum(os.times()[:4]) - self._used_s
        if report.failed:
            self.failed.add(report.nodeid)
        if report.skipped:
            self._skipped.add(report.nodeid)

    def passed(self) -> list[str]:
        """Return the tests that passed."""
        return [name for name in self.seconds if name not in self.failed | self._skipped]


def _is_wanted(item: pytest.Item) -> bool:
    marks = {mark.name for mark in item.iter_markers()}
    is_of_children = any(item.nodeid.startswith(file) for file in IN_CHILDREN)
    return not marks & MARKS_LEFT_OUT and (is_of_children or "long" not in marks)


def functions_by_test(tracer: Coverage) -> dict[str, set[str]]:
    """Return the functions that each test has run."""
    data, by_test = tracer.get_data(), defaultdict(set)
    for path in data.measured_files():
        file = str(Path(path).relative_to(SOURCE))
        names: dict[int, str] = {}
        for name, first, last in functions_of(Path(path).read_text(encoding="utf-8")):
            names |= dict.fromkeys(range(first, last + 1), f"{file} {name}")
        for line, tests in data.contexts_by_lineno(path).items():
            for test in tests:
                if line in names:
                    by_test[test].add(names[line])
    return by_test


def measure(path: Path, chosen: Sequence[str]) -> None:
    """Run the tests of files, those that fail once more, and write what was measured."""
    include = [f"{SOURCE}/{package}/*" for package in PACKAGES]
    tracer = Coverage(data_file=None, include=include, config_file=False)
    tracer.set_option("run:disable_warnings", ["trace-changed", "no-data-collected"])
    tracer.start()
    meter = _Meter(tracer)
    pytest.main([*OPTIONS, *chosen], plugins=[meter])
    tracer.stop()
    if meter.failed:  # some only because they were traced
        again = _Meter(None)
        pytest.main([*OPTIONS, *sorted(meter.failed)], plugins=[again])
        meter.failed -= set(again.passed())
    print(*(f"fails without a fault: {name}" for name in sorted(meter.failed)), sep="\n")
    functions = functions_by_test(tracer)
    tests: dict[str, dict[str, Any]] = defaultdict(dict)
    for name in meter.passed():
        took_s = round(meter.seconds[name], 2)
        measured = took_s, sorted(functions.get(name, ())), name in meter.opaque
        tests[name.partition("::")[0]][name] = measured
    path.write_text(json.dumps(tests), encoding="utf-8")


if __name__ == "__main__":
    measure(Path(sys.argv[1]), sys.argv[2:])
