"""Tests that share a Cassandra node stay in one process, the laws in another."""

import os
import subprocess
import sys
from pathlib import Path

FEW_TESTS = """
import os
from pathlib import Path
import pytest

pytestmark = pytest.mark.cassandra

@pytest.mark.parametrize("number", range(8))
def test_that_tells_its_process(number: int) -> None:
    with (Path(__file__).parent / "processes").open("a") as told:
        told.write(f"{os.getpid()}\\n")
"""


def test_tests_on_a_node_stay_in_one_process(tmp_path: Path) -> None:
    """Two processes would start the same node, at the same addresses, side by side."""
    hook = "from tests.conftest import pytest_collection_modifyitems\n"
    (tmp_path / "conftest.py").write_text(hook)
    for folder in (tmp_path / "one", tmp_path / "contract"):
        folder.mkdir()
        for name in ("test_one.py", "test_other.py"):
            (folder / name).write_text(FEW_TESTS)
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
    for folder in (tmp_path / "one", tmp_path / "contract"):
        told = (folder / "processes").read_text().split()
        assert len(told) == 16
        assert len(set(told)) == 1
