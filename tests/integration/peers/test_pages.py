"""The programs of pages that need another library, run with that library."""

import subprocess
from pathlib import Path

import pytest

from tests.harness.markdown import ROOT, program_of
from tests.harness.peers import PEERS, needs_peers

END = "\nimport os\nprint('the end', flush=True)\nos._exit(0)\n"
"""What ends the program: the threads of Temporal's library may crash an interpreter that ends."""


@needs_peers
@pytest.mark.slow
@pytest.mark.parametrize("name", ["dbos", "temporal"])
def test_the_original_does_what_the_page_says(name: str, tmp_path: Path) -> None:
    page = (ROOT / f"docs/coming-from/{name}.md").read_text(encoding="utf-8")
    program = tmp_path / "original.py"
    program.write_text(program_of(page, name) + END, encoding="utf-8")
    done = subprocess.run(
        [PEERS, program], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.endswith("the end\n"), done.stderr
    assert done.returncode == 0, done.stderr
