"""Tasks of a notebook, and of a script, in child processes."""

import subprocess
import sys
from pathlib import Path

import pytest

from dueline.api.cells import needed_source

CELLS = [
    "import os\nimport math as m\nfrom dueline import Dueline\napp = Dueline('sqlite:///jobs.db')",
    "FACTOR = 1\ndef helper(x):\n    return x * FACTOR",
    "@app.task\ndef double(x: int) -> int:\n    return undefined",
    "this does not parse",
    "FACTOR = 2\nTABLE = {}\nTABLE['a'] = 1",
    "@app.task\ndef double(x: int) -> int:\n    return helper(x)",
    "def pid_of() -> int:\n    return os.getpid() + TABLE['a']\npid = app.task(pid_of)",
    "jobs = [double.enqueue(1), pid.enqueue()]",
    "with app.worker(processes=2):\n    results = [job.result(timeout=30) for job in jobs]",
    "assert results[0] == 2 and results[1] != os.getpid() + 1, results",
    "print('as a notebook does', app.job(jobs[0].id).status)",
]
"""Cells of a notebook, which has run them in this order."""

NOTEBOOK = f"""
In = [""]
for cell in {CELLS!r}:
    try:
        code = compile(cell, "<cell>", "exec")
    except SyntaxError:
        continue
    In.append(cell)
    exec(code, globals())
"""

SCRIPT = """
from dueline import Dueline
app = Dueline("sqlite:///jobs.db")

@app.task
def double(x: int) -> int:
    return 2 * x

app.run_worker(processes=1)
"""


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program of Python."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, timeout=100, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_tasks_of_a_notebook_run_in_child_processes(tmp_path: Path) -> None:
    ended = run("-c", NOTEBOOK, folder=tmp_path)
    assert "as a notebook does done" in ended.stdout, ended.stderr


def test_a_shell_that_keeps_no_source_is_an_error_with_a_recipe(tmp_path: Path) -> None:
    program = (
        "from dueline import Dueline\napp = Dueline('sqlite:///jobs.db')\n"
        "app.run_worker(processes=1, burst=True)"
    )
    ended = run("-c", program, folder=tmp_path)
    assert "this shell does not keep what was typed" in ended.stderr
    assert "%%writefile" in ended.stderr


@pytest.mark.slow
def test_a_script_that_starts_workers_where_it_is_imported_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    ended = run("script.py", folder=tmp_path)
    assert 'below `if __name__ == "__main__":`' in ended.stderr
    assert "ConfigError: The worker's child processes exit" in ended.stderr


def test_only_what_tasks_need_is_taken_from_cells() -> None:
    source = needed_source(CELLS, {"app", "pid"}, {"app"})
    for needed in ("import os", "FACTOR = 2", "TABLE['a'] = 1", "return helper(x)", "pid = "):
        assert needed in source
    for other in ("import math", "FACTOR = 1", "undefined", "enqueue", "worker", "assert"):
        assert other not in source


def test_registrations_and_definitions_within_other_statements_are_taken() -> None:
    cells = [
        "try:\n    import fast as lib\nexcept ImportError:\n    lib = None",
        "register_type(Money, encode=str, decode=Money)\nother.add(3)\nprint(app)",
        "class Money: ...",
        "@app.hooks\ndef hook(event): ...",
        "total = 1\ntotal += 1\nobject.a = 5",
        "@app.task\ndef task(x: Money): return lib, total",
    ]
    source = needed_source(cells, {"app"}, {"app"})
    assert "import fast as lib" in source
    assert "register_type" in source
    assert "def hook" in source
    assert "total += 1" in source
    for other in ("other.add", "print", "object.a"):
        assert other not in source
