"""Which tests of servers share a process, and which take turns."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.mutants.planted import environment

PARTS = [{"LAWS_PART": f"{number}/3"} for number in range(3)]

FEW_TESTS = """
import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.cassandra

@pytest.mark.parametrize("number", range(8))
def test_that_tells_its_process(number: int) -> None:
    with Path(__file__).with_suffix(".processes").open("a") as processes:
        processes.write(f"{os.getpid()}\\n")
"""


LAWS = """
import pytest

@pytest.mark.parametrize("number", range(8))
class Laws:
    def test_law(self, number: int) -> None:
        pass

@pytest.mark.cassandra
class TestCassandra(Laws):
    pass

@pytest.mark.postgres
class TestPostgres(Laws):
    pass

@pytest.mark.redis
class TestRedis(Laws):
    pass

class TestMemory(Laws):
    pass
"""


def run(folder: Path, *arguments: str, variables: Mapping[str, str]) -> str:
    """Run the tests of a folder with the hook of this project's tests; return the output."""
    hook = "from tests.conftest import pytest_collection_modifyitems\n"
    (folder / "conftest.py").write_text(hook)
    markers = "".join(f"    {mark}: on a server\n" for mark in ("cassandra", "postgres", "redis"))
    (folder / "pytest.ini").write_text(f"[pytest]\nmarkers =\n{markers}")
    command = [sys.executable, "-m", "pytest", "-q", "--import-mode=importlib", *arguments]
    own = {name: value for name, value in variables.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [*command, str(folder)],
        env=own | {"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def collected(folder: Path, variables: Mapping[str, str]) -> str:
    """Return the names of the tests of a folder that would run, and their count."""
    return run(folder, "--collect-only", variables=variables)


@pytest.mark.long
def test_the_cassandra_tests_of_a_module_share_one_process(tmp_path: Path) -> None:
    """Two processes would make the same keyspaces, or start the same node, side by side."""
    for name in ("test_one.py", "test_other.py", "test_laws.py"):
        (tmp_path / name).write_text(FEW_TESTS)
    run(tmp_path, "-n", "3", "--dist", "loadgroup", variables=os.environ)
    for name, processes_max in (("test_one", 1), ("test_other", 1), ("test_laws", 2)):
        processes = (tmp_path / f"{name}.processes").read_text().split()
        assert len(processes) == 8
        assert len(set(processes)) <= processes_max


@pytest.mark.slow
def test_servers_take_turns_with_the_laws(tmp_path: Path) -> None:
    """Each part runs each law on one server; the other parts run it on the others."""
    (tmp_path / "test_laws.py").write_text(LAWS)
    parts = [
        set(re.findall(r"::(\w+)::test_law\[(\d)\]", collected(tmp_path, os.environ | part)))
        for part in PARTS
    ]
    memory = {("TestMemory", str(number)) for number in range(8)}
    assert len(set[tuple[str, str]]().union(*parts)) == 4 * 8
    for part in parts:
        assert part >= memory
        assert sorted(number for _, number in part - memory) == list("01234567")
        assert len({name for name, _ in part}) == 4


@pytest.mark.slow
def test_a_law_that_has_to_notice_a_mistake_is_of_each_part(tmp_path: Path) -> None:
    (tmp_path / "test_laws.py").write_text(LAWS)
    assert "32 tests" in collected(tmp_path, environment("", "", os.environ | PARTS[0]))
