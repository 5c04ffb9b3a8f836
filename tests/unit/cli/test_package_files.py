"""Applications that are named by a file in a package."""

import pytest

from tests.harness.shell import Shell

APP = """
from dueline import Dueline

app = Dueline("sqlite:///jobs.db", include=["shop.mail"])
"""

MAIL = """
from .app import app


@app.task
def send(to: str) -> None: ...
"""


@pytest.fixture
def packaged(bare_shell: Shell) -> Shell:
    """Make a package with an application and a module of tasks."""
    shop = bare_shell.folder / "shop"
    shop.mkdir()
    for name, text in {"__init__": "", "app": APP, "mail": MAIL}.items():
        (shop / f"{name}.py").write_text(text)
    return bare_shell


def test_a_worker_without_tasks_names_the_module(packaged: Shell) -> None:
    answer = packaged("worker", "shop/app.py", "--burst")
    assert (
        "The application has no tasks: its file is in a package, so name the module, shop.app:app."
    ) in answer.err
    assert "tasks: shop.mail.send" in packaged("worker", "shop.app:app", "--burst").err


def test_a_relative_import_that_fails_names_the_module(packaged: Shell) -> None:
    answer = packaged("worker", "shop/mail.py", "--burst")
    assert answer.code == 7
    assert "The file is in a package: name its module, shop.mail:app." in answer.err
