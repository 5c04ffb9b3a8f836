"""Commands in a folder below that of dueline.toml."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.shell import WAIT_S, Shell

APP = """
from dueline import Dueline

app = Dueline(include=["shop.mail"])
"""

MAIL = """
from shop.app import app


@app.task
def send(to: str) -> str:
    return to
"""


@pytest.fixture
def below(bare_shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a project, and be in a folder of it whose files have the names of the project's."""
    root = bare_shell.folder
    (root / "tasks.py").unlink()
    assert bare_shell("init").code == 0
    (root / "below" / "shop").mkdir(parents=True)
    (root / "below" / "tasks.py").write_text("raise AssertionError('not this file')")
    (root / "below" / "shop" / "__init__.py").write_text("raise AssertionError('nor this one')")
    monkeypatch.chdir(root / "below")
    return root


def test_the_application_and_the_store_are_those_of_the_project(
    bare_shell: Shell, below: Path
) -> None:
    assert bare_shell("enqueue", "tasks.hello", "Ann").code == 0
    assert bare_shell("worker", "--burst").code == 0
    for command in (["jobs", "list", "--state", "done"], ["queues", "list"]):
        assert len(bare_shell(*command, "-o", "json").data) == 1
    assert not list(Path().glob("*.db"))
    assert (below / "jobs.db").exists()


def test_a_store_of_the_command_line_is_in_the_current_folder(
    bare_shell: Shell, below: Path
) -> None:
    assert bare_shell("--store", "sqlite:///own.db", "enqueue", "tasks.hello", "Ann").code == 0
    assert Path("own.db").exists()
    assert not (below / "own.db").exists()


@pytest.mark.long
@pytest.mark.parametrize(("app", "processes"), [("shop.app:app", "2"), ("main.py:app", "0")])
def test_workers_import_the_modules_of_the_project(below: Path, app: str, processes: str) -> None:
    (below / "dueline.toml").write_text(f'app = "{app}"\nstore = "sqlite:///data/jobs.db"\n')
    for name, text in {"__init__": "", "app": APP, "mail": MAIL}.items():
        path = below / "shop" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (below / "main.py").write_text("from shop.app import app\n")
    (below / "data").mkdir()
    command = [sys.executable, "-P", "-m", "dueline"]
    environment = {key: os.environ[key] for key in os.environ if not key.startswith("DUELINE_")}
    for words in (
        ["enqueue", "shop.mail.send", "Ann"],
        ["worker", "--burst", "--processes", processes],
    ):
        subprocess.run([*command, *words], check=True, timeout=WAIT_S, env=environment)
    listed = [*command, "jobs", "list", "--state", "done"]
    shown = subprocess.run(listed, check=True, env=environment, capture_output=True, text=True)
    assert "shop.mail.send" in shown.stdout
