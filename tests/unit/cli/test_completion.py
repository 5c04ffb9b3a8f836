"""Shell completion (V7)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dueline.cli.main import complete
from tests.harness.shell import Shell

SHELLS = ("bash", "zsh", "fish")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("wor", ["worker", "workers"]),
        ("jobs re", ["reschedule", "resume", "retry"]),
        ("--store x jobs list --st", ["--state", "--store"]),
        ("jobs list --state re", ["ready", "retrying"]),
        ("jobs list -o j", ["json"]),
        ("--out", ["--output"]),
        ("completion ", ["bash", "fish", "zsh"]),
        ("jobs show 01", []),
        ("nosuch ", None),
        ("jobs cancel --all-", ["--all-matching"]),
    ],
)
def test_words_are_completed(line: str, words: list[str] | None) -> None:
    proposed = complete(line.split(" "))
    assert proposed == words if words is not None else "jobs" in proposed


def test_a_finding_of_the_first_hour() -> None:
    environment = {**os.environ, "_DUELINE_COMPLETE": "complete_bash"}
    command = [sys.executable, "-m", "dueline", "sche"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("schedules\n", "")


@pytest.mark.parametrize("name", SHELLS)
def test_each_shell_has_a_script_that_it_can_read(name: str, shell: Shell, tmp_path: Path) -> None:
    script = shell("completion", name).out
    assert "_DUELINE_COMPLETE" in script
    program = shutil.which(name)
    if program is not None:  # bash is everywhere
        file = tmp_path / "script"
        file.write_text(script, encoding="utf-8")
        subprocess.run([program, "-n", file], check=True, capture_output=True)
    assert name != "bash" or program is not None


def test_bash_offers_the_words(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "dueline").write_text(f'#!/bin/sh\nexec {sys.executable} -m dueline "$@"\n')
    (tmp_path / "dueline").chmod(0o755)
    script = shell("completion", "bash").out + (
        "COMP_WORDS=(dueline jobs res) COMP_CWORD=2; _dueline_complete; echo ${COMPREPLY[@]}\n"
    )
    path = f"{tmp_path}:{os.environ['PATH']}"
    command = ["bash", "-c", script]
    ended = subprocess.run(
        command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True
    )
    assert ended.stdout == "reschedule resume\n"
