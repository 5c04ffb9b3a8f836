"""What a process is set to while it runs `dueline worker`."""

import gc
import json
import sys
from collections.abc import Iterator

import pytest

from dueline.cli.commands.worker import TURN_S_MAX, YOUNG_OBJECTS, tuned
from tests.harness.shell import Shell

TASK = """
import gc
import json
import sys
from pathlib import Path

from dueline import Dueline

app = Dueline("sqlite:///jobs.db")


@app.task
def look() -> None:
    Path("seen.json").write_text(json.dumps([sys.getswitchinterval(), gc.get_threshold()[0]]))
"""


@pytest.fixture
def settings() -> Iterator[None]:
    """Restore what this process was set to."""
    before_s, thresholds = sys.getswitchinterval(), gc.get_threshold()
    yield
    sys.setswitchinterval(before_s)
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize(("before_s", "meanwhile_s"), [(0.02, TURN_S_MAX), (0.0005, 0.0005)])
def test_threads_take_short_turns_while_a_worker_runs(before_s: float, meanwhile_s: float) -> None:
    sys.setswitchinterval(before_s)
    gc.set_threshold(700, 10, 10)
    with tuned():
        assert sys.getswitchinterval() == pytest.approx(meanwhile_s)
        assert gc.get_threshold()[0] == YOUNG_OBJECTS
    assert sys.getswitchinterval() == pytest.approx(before_s)
    assert gc.get_threshold()[0] == 700


@pytest.mark.usefixtures("settings")
def test_the_command_tunes_its_process(shell: Shell) -> None:
    (shell.folder / "looks.py").write_text(TASK)
    sys.setswitchinterval(0.02)
    gc.set_threshold(700, 10, 10)
    assert shell("--app", "looks:app", "enqueue", "looks.look").code == 0
    assert shell("worker", "looks:app", "--burst").code == 0
    seen_s, young = json.loads((shell.folder / "seen.json").read_text())
    assert (seen_s, young) == (pytest.approx(TURN_S_MAX), YOUNG_OBJECTS)
    assert sys.getswitchinterval() == pytest.approx(0.02)
