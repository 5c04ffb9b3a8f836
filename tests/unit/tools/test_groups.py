"""The Cassandra tests of a module share one process, the laws two."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FEW_TESTS = """
import os
from pathlib import Path

import pytest
import pytest

pytestmark = pytest.mark.cassandra

@pytest.mark.parametrize("number", range(8))
def test_that_tells_its_process(number: int) -> None:
    with Path(__file__).with_suffix(".processes").open("a") as processes:
        processes.write(f"{os.getpid()}\\n")
"""


@pytest.mark.long
def test_the_cassandra_tests_of_a_module_share_one_process(tmp_path: Path) -> None:
    """Two processes would make the same keyspaces, or start the same node, side by side."""
    hook = "from tests.conftest import pytest_collection_modifyitems\n"
    (tmp_path / "conftest.py").write_text(hook)
    for name in ("test_one.py", "test_other.py", "test_laws.py"):
        (tmp_path / name).write_text(FEW_TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = cassandra: on a node\n")
    command = ["-m", "pytest", "-q", "-n", "3", "--dist", "loadgroup", "--import-mode=importlib"]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, *command, str(tmp_path)],
        env=own | {"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
    for name, processes_max in (("test_one", 1), ("test_other", 1), ("test_laws", 2)):
        processes = (tmp_path / f"{name}.processes").read_text().split()
        assert len(processes) == 8
        assert len(set(processes)) <= processes_max
