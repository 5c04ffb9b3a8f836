"""What a process loads: each that starts pays for it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dueline
from tests.harness.modules import loaded, typed_names

SLOW = {"asyncio", "ssl", "concurrent.futures", "multiprocessing.connection", "subprocess", "rich"}
WORKING = {
    "dueline.api.launch",
    "dueline.monitor.monitor",
    "dueline.worker.worker",
    "dueline.api.embedded_worker",
}
STORES = {"apsw", "dueline.stores.memory.store", "dueline.stores.cassandra.url"}


@pytest.mark.slow
def test_the_package_loads_its_names_when_they_are_used() -> None:
    found = loaded("import dueline")
    assert {name for name in found if name.startswith("dueline")} == {
        "dueline", "dueline.core", "dueline.core.version"
    }  # fmt: skip
    assert "dueline.core.errors" in loaded("from dueline import NotFound")
    assert "dueline.api.application" in loaded("import dueline; dueline.Dueline")


def test_the_public_names_are_those_that_checkers_and_editors_see() -> None:
    seen = typed_names(dueline)
    assert sorted(seen) == dueline.__all__
    for name, module in seen.items():
        assert getattr(dueline, name) is getattr(sys.modules[str(module)], name)
    assert {*dueline.__all__, "__version__"} <= {*dir(dueline)}
    with pytest.raises(AttributeError, match="module 'dueline' has no attribute 'Nothing'"):
        dueline.Nothing  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("word", ["--version", "version"])
def test_the_version_is_printed_and_needs_no_command_line_library(word: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dueline", word],
        check=True,
        capture_output=True,
        text=True,
    )
    assert ended.stdout == f"dueline {dueline.__version__}\n"
    assert ("typer" in ended.stderr) is (word == "version")


@pytest.mark.slow
def test_an_application_loads_no_worker_and_no_store_before_it_needs_one() -> None:
    found = loaded("import dueline; dueline.Dueline('sqlite:///jobs.db').queue('mail')")
    assert not found & (SLOW | WORKING | STORES)
    assert "dueline.jobs.queue" in found


@pytest.mark.slow
def test_of_the_stores_only_the_one_that_is_named_is_loaded() -> None:
    found = loaded("import dueline; dueline.Dueline('memory://').queues")
    assert not found & (SLOW | WORKING | (STORES - {"dueline.stores.memory.store"}))
    assert "dueline.stores.memory.store" in found


@pytest.mark.slow
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_worker_loads_an_event_loop_only_for_coroutines(*, asynchronous: bool) -> None:
    found = loaded(
        "import dueline; app = dueline.Dueline('memory://')\n"
        f"@app.task()\n{'async ' * asynchronous}def nothing() -> None: pass\n"
        "nothing.enqueue(); app.run_worker(burst=True)"
    )
    assert ("asyncio" in found) is asynchronous


def test_a_command_loads_no_other_one() -> None:
    found = loaded("from dueline.cli import run; run(['jobs', '--help'])")
    assert [name for name in found if name.startswith("dueline.cli.")]
    assert not found & (
        {"asyncio", "rich"}
        | WORKING
        | {"dueline.cli.commands.bench", "dueline.cli.commands.doctor"}
    )


TESTS = Path(__file__).parents[1]


CALLING = {"stores/cassandra/test_features.py", "stores/postgres/test_schedules.py"}
"""Modules that run tests of other stores on a server."""


def borrowed(source: str) -> list[str]:
    """List the test modules and conftests from which a test imports names, or which it imports."""
    found = []
    statements: list[ast.AST] = [ast.parse(source)]
    for node in statements:  # and those within, but no expressions: these take seconds
        statements += [
            child
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case)
        ]
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [
        name
        for name in found
        if name.startswith("tests.") and name.rpartition(".")[2].startswith(("test_", "conftest"))
    ]


def test_tests_import_helpers_from_the_harness_only() -> None:
    """Mutants name the tests that notice them; some modules call tests on their own store."""
    paths = [
        path
        for path in TESTS.rglob("*.py")
        if path.parent.name != "mutants" and str(path.relative_to(TESTS)) not in CALLING
    ]
    found = {str(path): borrowed(path.read_text(encoding="utf-8")) for path in paths}
    assert {path: names for path, names in found.items() if names} == {}
    for line in (
        "from tests.a.test_b import c",
        "from tests.a import test_b",
        "import tests.a.test_b",
    ):
        assert borrowed(line) == ["tests.a.test_b"]
