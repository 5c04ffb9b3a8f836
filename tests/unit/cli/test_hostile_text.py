"""Text that attacks whoever reads it: terminals, logs, spreadsheets, parsers."""

import csv
import io
import json
import logging
import os
from pathlib import Path

import pytest

from dueline import Dueline
from dueline.api.config import find_config
from dueline.api.logs import LogSettings
from dueline.core.errors import ConfigError
from tests.harness.shell import Shell

HOSTILE = "\x1b]0;x\x07 \x9b31m \u202e \u2066 \x7f"
DEEP = "[" * 100_000


@pytest.fixture
def poisoned(shell: Shell) -> Shell:
    """Store a dead job whose tags, tenant and error hold control characters."""
    app = Dueline("sqlite:///jobs.db")
    app.close()
    assert shell.app("enqueue", "tasks.fail", HOSTILE, "--tenant", "=cmd|'/c calc'!A0").code == 0
    shell.work()
    return shell


@pytest.mark.parametrize("form", ["json", "ndjson", "csv", "table"])
def test_no_form_of_output_passes_control_characters_on(poisoned: Shell, form: str) -> None:
    out = poisoned.app("dead", "list", "-o", form).out
    assert "ValueError" in out
    assert [sign for sign in out if not (sign.isprintable() or sign == "\n")] == []


def test_json_still_holds_the_very_text(poisoned: Shell) -> None:
    job = poisoned.app("dead", "list", "-o", "json").data[0]
    assert HOSTILE in poisoned.app("dead", "show", job["id"], "-o", "json").data["error"]


def test_a_cell_is_never_a_formula(poisoned: Shell) -> None:
    rows = list(csv.DictReader(io.StringIO(poisoned.app("dead", "list", "-o", "csv").out)))
    assert rows[0]["tenant"] == "'=cmd|'/c calc'!A0"


def test_an_error_cannot_pass_for_a_line_of_the_log(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    forged = "x\n2026-01-01T00:00:00.000Z INFO job=00 done \x1b[2J"
    app = Dueline("sqlite:///jobs.db")

    @app.task(name="tasks.forge")
    def forge() -> None:
        raise ValueError(forged)

    forge.enqueue()
    logger = logging.getLogger("dueline")
    handlers, level, propagates = logger.handlers, logger.level, logger.propagate
    try:
        LogSettings().show_own()
        app.run_worker(burst=True)
    finally:
        logger.handlers, logger.propagate = handlers, propagates
        logger.setLevel(level)
        app.close()
    lines = capsys.readouterr().err.splitlines()
    assert any("forged" in line or "INFO job=00" in line for line in lines)
    assert not [line for line in lines if line.startswith("2026-01-01")]
    assert not [line for line in lines if "\x1b" in line]


@pytest.mark.parametrize("word", [DEEP, f"a={DEEP}"], ids=["value", "named"])
def test_arguments_that_are_nested_too_deeply_are_refused(shell: Shell, word: str) -> None:
    answer = shell.app("enqueue", "tasks.add", word)
    assert answer.code == 2
    assert "nested too deeply" in answer.why


def test_a_file_and_a_signal_that_are_nested_too_deeply_are_refused(shell: Shell) -> None:
    Path("calls").write_text(f"[1]\n{DEEP}\n", encoding="utf-8")
    answer = shell.app("enqueue", "tasks.add", "--file", "calls")
    assert answer.code == 2
    assert "nested too deeply" in answer.err
    answer = shell.app("flows", "signal", "0" * 32, "yes", "--value", DEEP)
    assert answer.code == 2
    assert "nested too deeply" in answer.why


@pytest.mark.parametrize(
    "text", [f"x = {'[' * 5000}", f"x = {'{a=' * 5000}"], ids=["array", "table"]
)
def test_settings_that_are_nested_too_deeply_are_refused(shell: Shell, text: str) -> None:
    Path("dueline.toml").write_text(text, encoding="utf-8")
    answer = shell("jobs", "list")
    assert answer.code == 7
    assert json.dumps(answer.why)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
@pytest.mark.parametrize("given", ["file", "folder"])
def test_settings_of_another_user_are_not_read(tmp_path: Path, given: str) -> None:
    file = tmp_path / "shared" / "dueline.toml"
    below = file.parent / "project"
    below.mkdir(parents=True)
    file.write_text('app = "evil:app"\n', encoding="utf-8")
    os.chown(file if given == "file" else file.parent, 65534, 65534)
    with pytest.raises(ConfigError, match="belongs to another user") as refused:
        find_config(environment={}, folder=below)
    assert "chown" in refused.value.hint
    named = find_config(store="sqlite:///a.db", app="b:c", environment={}, folder=below)
    assert named.app == "b:c"
