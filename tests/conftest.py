"""What every test stands on."""

import gc
import itertools
import os
import re
import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

from dueline.api.connect import EXTRA_STORES
from dueline.core.logging import log
from tests.harness.stepped_store import SteppedMemoryStore
from tests.mutants import table

CI_EXAMPLES = 100
FEW_EXAMPLES = 50
LONG_EXAMPLES = 10_000
CASES_MIN = 4
"""Minimum number of cases of a slow test of which each part has some."""

FOLDERS = itertools.count()

YOUNG_OBJECTS = 20_000
"""Python looks for garbage among so many new objects; there are far more that stay."""

FILES_MAX = 300
"""Number of open files from which Python looks for garbage after a test."""

UNMEASURED = {
    "benchmarks", "cli", "contrib", "docs", "failures", "foresight", "kills", "monitor", "power",
    "simulation", "spark",
}  # fmt: skip
"""Folders whose tests are of rooms of which no coverage is asked; the others have their own."""

LONG = {"failures", "kills", "moving", "simulation"}
"""Folders of tests that wait for processes, or lead thousands of lives."""

SERVERS = ("cassandra", "postgres", "redis")
"""Markers of tests on servers."""

SERVER_IN_CASE = re.compile(r"cassandra|postgres|redis|valkey")
"""What the names of cases on several servers differ by."""

LONG_PAGES = [f"[docs/{one}/" for one in ("coming-from", "how-to", "operations", "pipeline")]
"""Pages whose blocks are many processes; `make test` runs the others."""

SLOW_PAGES = [
    f"[{page}.md" for page in ("README", "docs/quickstart", "docs/concepts/job-life",
    "docs/guides/command-line", "docs/guides/durable-functions", "docs/guides/observability",
    "docs/guides/queues", "docs/guides/workflows", "docs/reference/wire-format")
]  # fmt: skip
"""Pages that take a second."""

for judge in ("late_landing", "spark", "store_comparison"):
    pytest.register_assert_rewrite(f"tests.harness.{judge}")

EXTRA_STORES["memory://?transactional=off"] = SteppedMemoryStore

UNHURRIED = [HealthCheck.too_slow]  # a busy machine is no finding

# Whoever runs the tests in the background, with `nohup` or without job control, has them ignored:
# so would the processes that tests start, stop and reload.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "ci",
    max_examples=CI_EXAMPLES,
    derandomize=True,
    deadline=None,
    suppress_health_check=UNHURRIED,
)
settings.register_profile(
    "few",
    max_examples=FEW_EXAMPLES,
    derandomize=True,
    deadline=None,
    suppress_health_check=UNHURRIED,
)
settings.register_profile(
    "long",
    max_examples=LONG_EXAMPLES,
    deadline=None,
    print_blob=True,
    suppress_health_check=UNHURRIED,
)


def pytest_configure(config: pytest.Config) -> None:
    """Choose the Hypothesis profile; let no setting of the caller's shell into the tests."""
    if not config.getoption("--hypothesis-profile", default=None):
        settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "few"))
    for name in ("DUELINE_STORE", "DUELINE_APP"):
        os.environ.pop(name, None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage meanwhile: nearly all that is made stays, and it took a fifth of it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep a module's tests on a server in one process; say whose coverage is not measured.

    A module makes keyspaces or schemas, and some start servers, once for all of its tests.
    The laws, by far the most, are shared by two processes for each class.

    Coverage of these tests is not measured: the stores' own modules are left out of it.
    Nor is that of long tests and of random examples: what they find to run is also run by an
    example that somebody chose; and Hypothesis takes three times as long when it is measured.
    """
    for item in items:
        if LONG & set(item.nodeid.split("/")) or _is_of_page(item, LONG_PAGES):
            item.add_marker(pytest.mark.long)
        if _is_of_page(item, SLOW_PAGES):
            item.add_marker(pytest.mark.slow)
        if _is_slow_law(item):
            item.add_marker(pytest.mark.slow)
    _leave_out(config, items)
    for place, item in enumerate(items):
        is_long = item.get_closest_marker("long") is not None or _is_slow_law(item)
        is_random = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        if is_long or is_random or UNMEASURED & set(item.nodeid.split("/")):
            item.add_marker(pytest.mark.no_cover)
        if any(map(item.get_closest_marker, SERVERS)):
            item.add_marker(pytest.mark.no_cover)
            if config.pluginmanager.hasplugin("xdist"):
                group = item.parent.nodeid if item.parent else ""
                if item.path.stem == "test_laws":
                    group = f"{group} {place % 2}"
                item.add_marker(pytest.mark.xdist_group(group))


def _leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the environment says: all but a part of mutants, long tests and cases."""
    others = set(_other_cases(items))
    others.update(_other_servers(items))
    for variable, mark in (
        ("MUTANTS_PART", "mutants"), ("LONG_PART", "long"), ("SPARK_PART", "spark")
    ):  # fmt: skip
        if part := os.environ.get(variable):
            number, parts = map(int, part.split("/"))
            others |= {
                item
                for item in items
                if item.get_closest_marker(mark) is not None
                and crc32(item.nodeid.encode()) % parts != number
            }
    config.hook.pytest_deselected(items=list(others))
    items[:] = [item for item in items if item not in others]


def _other_cases(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield the slow tests that are not of the part `SLOW_PART`.

    A test of many cases keeps its share of them; others are of one part.
    """
    number, parts = map(int, os.environ.get("SLOW_PART", "0/1").split("/"))
    tests = defaultdict(list)
    for item in items:
        if item.get_closest_marker("slow") is not None:
            tests[item.nodeid.partition("[")[0]].append(item)
    for test, cases in tests.items():
        if len(cases) < CASES_MIN:
            yield from (case for case in cases if crc32(test.encode()) % parts != number)
        else:
            cases.sort(key=lambda case: crc32(case.nodeid.encode()))
            yield from (case for place, case in enumerate(cases) if place % parts != number)


def _other_servers(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield the cases of tests on servers whose turn it is not, of what `SERVERS_TURN` says.

    A test with a case for each of several servers runs on one of them, and a law of the stores
    likewise: in turn on Cassandra, PostgreSQL and Redis, and in turn on servers of one kind. Of
    what is tested on one server alone, every other turn has a half.
    """
    turn = os.environ.get("SERVERS_TURN")
    if turn is None:
        return
    tests: defaultdict[str, defaultdict[str, list[pytest.Item]]]
    tests = defaultdict(lambda: defaultdict(list))
    for item in items:
        for mark in filter(item.get_closest_marker, SERVERS):
            name, _, case = item.nodeid.partition("[")
            if item.path.stem == "test_laws":
                name, case = item.name, ""
            tests[name + SERVER_IN_CASE.sub("", case)][mark].append(item)
    for test, cases in tests.items():
        number = crc32(test.encode()) + int(turn)
        mark = sorted(cases)[number % len(cases)]
        own = sorted(cases[mark], key=lambda item: item.nodeid)
        is_alone = len(cases) == len(own) == 1
        kept = None if is_alone and number % 2 == 0 else own[number // 3 % len(own)]
        yield from (item for item in itertools.chain(*cases.values()) if item is not kept)


def _is_slow_law(item: pytest.Item) -> bool:
    """Return whether a test is a law that starts processes, or one with random runs."""
    function = getattr(item, "function", None)
    return "any_life" in item.name or (
        getattr(function, "__module__", "") == "dueline.store_tests.processes"
    )


def _is_of_page(item: pytest.Item, pages: list[str]) -> bool:
    return item.path.stem == "test_docs" and any(page in item.name for page in pages)


def pytest_sessionfinish() -> None:
    """Drop the keyspaces that tests of this process have used in turn."""
    node = sys.modules.get("tests.harness.cassandra_node")
    if node is not None:
        node.drop_keyspaces()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Look for no garbage among the tests themselves: that took a tenth of the run."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 50)


def pytest_runtest_logfinish() -> None:
    """Look for garbage once many files are open: stores in cycles keep theirs until then.

    A test that waits with `select` needs descriptors below 1,024.
    """
    lowest_free = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest_free)
    if lowest_free > FILES_MAX:
        gc.collect()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print which mutant was caught by what; from here, since only the first process prints."""
    reports = terminalreporter.getreports("passed")
    caught = table.lines(one for report in reports for one in report.user_properties)
    for line in caught:
        terminalreporter.write_line(line)
    missed = [one for one in terminalreporter.getreports("failed") if "mutants" in one.keywords]
    if caught or missed:
        terminalreporter.write_line(f"{len(caught)} mutants caught, {len(missed)} not")


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Trace nothing where coverage is not wanted.

    In a process of xdist, pytest-cov 7 starts two measurements and pauses one: such a test took
    three times as long.
    """
    if item.get_closest_marker("no_cover") is None:
        return (yield)
    with _without_tracers():
        return (yield)


@contextmanager
def _without_tracers() -> Iterator[None]:
    tracers = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        yield
    finally:
        threading.settrace(tracers[1])
        sys.settrace(tracers[0])


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of the test; pytest's own reads all folders of the run to number it."""
    name = "".join(sign if sign.isalnum() else "_" for sign in request.node.name[:30])
    return tmp_path_factory.mktemp(f"{name}{next(FOLDERS)}", numbered=False)


@pytest.fixture
def untraced() -> Iterator[None]:
    """Keep coverage out of a test that interrupts threads.

    What interrupts a handler may strike the tracer while it holds its lock, for which every
    thread of the process then waits; and while an interruption is on its way to one thread, a
    traced one does not get on (CPython 3.11).
    """
    with _without_tracers():
        yield


@pytest.fixture(autouse=True)
def same_log_level() -> Iterator[None]:
    """Fail a test that leaves the log silent: tests after it would read an empty one."""
    level = log.level
    yield
    assert log.level == level
