"""The pipeline for schedulers: a function with a typed result, and exit codes (P14)."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("deltalake")

from dueline import Dueline
from dueline.cli.errors import show_error
from dueline.core import errors
from tests.harness.markdown import ROOT
from tests.harness.shell import Shell
from tests.harness.spark.tables import app_with_a_past, made, quiet, rows_in, spoil

PAGE = ROOT / "docs" / "pipeline" / "orchestration.md"
ROWS = re.findall(r"^\| (\d+) \| .+? \| (yes|no)? ?\|$", PAGE.read_text("utf-8"), re.MULTILINE)
RUN = ("pipeline", "run", "--out", "lake", "--engine", "duckdb")
AUDIT = ("pipeline", "audit", "--out", "lake", "--engine", "duckdb")

Situation = Callable[[Shell, Dueline], int]


def done(shell: Shell, app: Dueline) -> int:
    assert shell(*AUDIT, "--store", app.url).code == 0
    return shell(*RUN, "--store", app.url).code


def wrong_words(shell: Shell, app: Dueline) -> int:
    assert shell(*RUN, "--store", app.url, "--until", "soon").code == 2
    return shell(*RUN, "tin", "--store", app.url).code


def blocked(shell: Shell, app: Dueline) -> int:
    (shell.folder / "lake").write_text("a file")
    return shell(*RUN, "--store", app.url).code


def unknown(shell: Shell, app: Dueline) -> int:
    return shell(*RUN, "--store", app.url, "--queue", "none").code


def of_another_store(shell: Shell, app: Dueline) -> int:
    made(shell.folder / "lake", app).run([], quiet)
    other = shell.folder / "other"
    other.mkdir()
    app_with_a_past(other).close()
    return shell(
        *RUN, "--store", f"sqlite:///{other / 'jobs.db'}", "--since", "2026-01-01T00:00Z"
    ).code


def lost(shell: Shell, app: Dueline) -> int:
    spoil(app, [next(app.queues.engine.jobs_of("mail"))])
    return shell(*AUDIT, "--store", app.url).code


def no_store(shell: Shell, app: Dueline) -> int:
    app.close()
    assert shell(*RUN, "--store", "sqlite:///none.db").code == 7
    return shell(*RUN).code


def signalled(number: int) -> Situation:
    def stop(shell: Shell, app: Dueline) -> int:
        command = [sys.executable, "-u", "-m", "dueline", *RUN, "--store", app.url, "--every", "1h"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            assert any(line.startswith("gold") for line in process.stdout)  # now it pauses
            process.send_signal(number)
            code = process.wait()
        return code if code >= 0 else 128 - code  # as a shell says it

    return stop


SITUATIONS: dict[str, Situation] = {
    "0": done, "2": wrong_words, "3": blocked, "4": unknown, "5": of_another_store, "6": lost,
    "7": no_store, "130": signalled(signal.SIGINT), "143": signalled(signal.SIGTERM),
}  # fmt: skip


def test_the_page_lists_all_codes() -> None:
    assert [code for code, _ in ROWS] == list(SITUATIONS)


@pytest.mark.parametrize("code", SITUATIONS)
def test_a_command_ends_with_the_code_of_its_situation(
    code: str, app: Dueline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert SITUATIONS[code](Shell(tmp_path, capsys), app) == int(code)


INTERRUPTED = """
import os, signal, threading
import pyarrow as pa
from dueline.spark.pipeline.queries import Duck

rows = pa.table({{"n": range(100_000)}})
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
{query}
"""
COUNT = "SELECT count(*) FROM range(1000000000000) AS r WHERE hash(r.range) ="
PAIRS = "FROM rows AS a, rows AS b, rows AS c"


@pytest.mark.parametrize(
    "query",
    [
        f"Duck().run('{COUNT} 7', {{}}).table()",
        f"Duck().run('{COUNT} :n', {{}}, {{'n': 7}}).table()",
        f"Duck().run('SELECT max(a.n + b.n * c.n) AS n {PAIRS}', {{'rows': rows}}).table()",
        f"[0 for _ in Duck().run('SELECT a.n {PAIRS}', {{'rows': rows}}).batches()]",
    ],
    ids=["computes", "prepares", "reads rows", "returns rows"],
)
def test_ctrl_c_while_duckdb_runs_is_ctrl_c(query: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED.format(query=query)]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (-2, "KeyboardInterrupt")


def test_what_may_pass_is_what_the_page_says() -> None:
    from dueline.spark.pipeline.updates import TRANSIENT

    again = {int(code) for code, word in ROWS if word == "yes"} - {130, 143}
    kinds = [
        errors.BadInput, errors.ConfigError, errors.Conflict, errors.HistoryExpired,
        errors.LakeUnavailable, errors.NotFound, errors.StoreUnavailable, errors.Unknown,
    ]  # fmt: skip
    for kind in kinds:
        assert issubclass(kind, TRANSIENT) == (show_error(kind("It is so.", hint="Wait.")) in again)


def test_the_function_does_what_the_commands_do(app: Dueline, tmp_path: Path) -> None:
    from dueline.spark import update_tables

    said: list[str] = []
    updated = update_tables(app.url, str(tmp_path / "lake"), say=said.append)
    made(tmp_path / "other", app).run([], quiet)
    for table in ("bronze", "silver", "poison", "slo"):
        assert rows_in(tmp_path / "lake", table) == rows_in(tmp_path / "other", table)
    summary = updated.summary()
    assert summary["rows"] == {step.name: step.rows for step in updated.steps}
    assert list(summary["rows"]) == ["bronze", "silver", "gold"]
    assert (summary["queues"]["mail"], summary["findings"], updated.is_clean) == ("clean", 0, True)
    assert said
    spoil(app, [next(app.queues.engine.jobs_of("mail"))])
    again = update_tables(app.url, str(tmp_path / "lake"), steps=["silver"])
    assert ([step.name for step in again.steps], again.is_clean) == (["silver"], False)
    unaudited = update_tables(app.url, str(tmp_path / "lake"), audit=False)
    assert (unaudited.audit, unaudited.is_clean) == (None, True)
