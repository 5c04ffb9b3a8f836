"""Which tests of servers share a process, and which take turns."""

import itertools
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.mutants.planted import environment

TURNS = [{"SERVERS_TURN": str(number)} for number in range(6)]

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

class TestValkey(TestRedis):
    pass

class TestMemory(Laws):
    pass
"""

CASES = """
import pytest

KINDS = ["sqlite"] + [
    pytest.param(kind, marks=getattr(pytest.mark, mark))
    for kind, mark in (("cassandra",) * 2, ("postgres",) * 2, ("redis",) * 2, ("valkey", "redis"))
]

@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("kind", KINDS)
def test_case(kind: str, number: int) -> None:
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
@pytest.mark.parametrize(("name", "text"), [("test_laws", LAWS), ("test_cases", CASES)])
def test_servers_take_turns(tmp_path: Path, name: str, text: str) -> None:
    """Each turn runs each law and each case on one server, and on each store without a server."""
    (tmp_path / f"{name}.py").write_text(text)
    turns = [
        Counter(re.findall(r"(Test\w+|sqlite|cassandra|postgres|redis|valkey)\W.*(\d)\]", output))
        for output in (collected(tmp_path, os.environ | turn) for turn in TURNS)
    ]
    always = {case for case in turns[0] if case[0] in ("TestMemory", "sqlite")}
    assert len(always) == 8
    for turn in turns:
        assert turn.keys() >= always
        assert sorted(number for _, number in turn.keys() - always) == list("01234567")
    assert len(set(itertools.chain(*turns))) == 5 * 8
    for number in "01234567":
        times = Counter(server for turn in turns for server, place in turn if place == number)
        assert sorted(times.values()) == [1, 1, 2, 2, len(TURNS)]


@pytest.mark.slow
def test_a_law_that_has_to_notice_a_mistake_takes_no_turns(tmp_path: Path) -> None:
    (tmp_path / "test_laws.py").write_text(LAWS)
    assert "40 tests" in collected(tmp_path, environment("", "", os.environ | TURNS[0]))
