"""Counts of dropped answers outlast the processes that dropped them."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kills.strays import strays_in

pytest.importorskip("cassandra", reason="the driver is not installed")

DROP = """
import os, pathlib, signal, sys
from dueline.stores.cassandra.guard import STRAY_ANSWERS, GuardedConnection
from tests.kills.strays import note_strays
note_strays(pathlib.Path(sys.argv[1]))
for _ in range(3):
    GuardedConnection.stray_answers.drop()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_answers_that_killed_processes_dropped_are_counted(tmp_path: Path) -> None:
    assert strays_in(tmp_path) == 0
    for _ in range(2):
        ended = subprocess.run([sys.executable, "-c", DROP, str(tmp_path)], check=False)
        assert ended.returncode < 0
    assert strays_in(tmp_path) == 6
