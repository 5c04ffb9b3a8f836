"""A worker whose application cannot be imported leaves word of it (O12)."""

import importlib
import sys
from pathlib import Path

import pytest

from tests.harness.shell import STORE, Answer, Shell

BROKEN = """
from dueline import Dueline

app = Dueline("sqlite:///jobs.db")

import nowhere
"""


def fresh(shell: Shell, *words: str) -> Answer:
    for name in ("shop", "parts", "nowhere"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    return shell(*words)


@pytest.mark.parametrize("given", ["store", "module", "include"])
def test_it_is_named_until_a_worker_starts(shell: Shell, given: str) -> None:
    shell.app("enqueue", "tasks.add", "1")
    if given == "include":
        Path("parts.py").write_text("import nowhere\n", encoding="utf-8")
        text = BROKEN.replace('.db"', '.db", include=["parts"]').replace("import nowhere", "")
    else:
        text = BROKEN if given == "module" else "import nowhere\n"
    Path("shop.py").write_text(text, encoding="utf-8")
    words = ["--store", STORE] if given == "store" else []
    for _ in range(2):
        assert fresh(shell, *words, "worker", "shop:app", "--burst").code == 7
    shown = shell("--store", STORE, "alerts")
    assert shown.code == 6
    assert "A worker of shop:app on" in shown.out
    assert "2 times" in shown.out
    assert "nowhere" in shown.out
    for command in (["doctor"], ["top"], ["health", "--ready"]):
        text = " ".join(shell("--store", STORE, *command).out.split())
        assert "shop:app" in text, command
        assert "cannot start for" in text, command
    Path("nowhere.py").write_text("", encoding="utf-8")
    if given == "store":
        Path("shop.py").write_text(BROKEN, encoding="utf-8")
    assert fresh(shell, *words, "worker", "shop:app", "--burst").code in (0, 8)
    assert shell("--store", STORE, "alerts").code == 0
