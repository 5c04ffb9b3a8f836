"""`dueline web`."""

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from dueline.cli.commands.web import TOKENS_VARIABLE, read_tokens
from dueline.core.errors import ConfigError
from tests.harness.shell import Shell


@pytest.mark.long
def test_it_serves_a_store_that_only_this_machine_reads(shell: Shell, tmp_path: Path) -> None:
    job_id = shell.enqueue("tasks.add", "1")
    line = [sys.executable, "-m", "dueline", "--store", "sqlite:///jobs.db", "web", "--port", "0"]
    with subprocess.Popen(line, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        match = re.search(r"http://127\.0\.0\.1:\d+/", process.stderr.readline())
        assert match
        page = httpx.get(f"{match[0]}jobs")
        assert page.status_code == 200
        assert job_id in page.text
        assert "Cancel…" not in page.text
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode in (130, -signal.SIGINT)


def test_it_refuses_other_machines_without_a_login(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "jobs.example"):  # noqa: S104
        answer = shell.app("web", "--host", host, "--port", "0")
        assert answer.code == 7
        assert "without a login" in answer.err
    monkeypatch.setenv(TOKENS_VARIABLE, "operator")
    assert "ROLE:TOKEN" in shell.app("web").err


def test_it_says_that_a_port_is_taken_or_the_store_is_not_there(
    shell: Shell, bare_shell: Shell
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        answer = shell.app("web", "--port", str(taken.getsockname()[1]))
    assert answer.code == 7
    assert "Cannot listen" in answer.err
    assert bare_shell("--store", "sqlite:///none.db", "web").code == 7


def test_tokens_are_read_with_their_roles() -> None:
    assert read_tokens("") == {}
    assert read_tokens("reader:a, admin:b:c") == {"a": "reader", "b:c": "admin"}
    for text in ("root:x", "reader:", "x"):
        with pytest.raises(ConfigError):
            read_tokens(text)
