"""What systemd hears from a worker (O12)."""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline import Dueline
from dueline.api.service_manager import reported
from tests.harness.programs import wait_for


class Turning:
    """A worker's loop."""

    ago_us = 0

    def turned_ago_us(self) -> int:
        return self.ago_us


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"{tmp_path}/s")
        listening.setblocking(False)  # noqa: FBT003
        monkeypatch.setenv("NOTIFY_SOCKET", f"{tmp_path}/s")
        monkeypatch.delenv("WATCHDOG_USEC", raising=False)
        monkeypatch.delenv("WATCHDOG_PID", raising=False)
        yield listening


def heard(manager: socket.socket) -> list[str]:
    found = []
    try:
        while True:
            found.append(manager.recv(99).decode())
    except BlockingIOError:
        return found


def test_a_worker_is_ready_and_stops(manager: socket.socket) -> None:
    app = Dueline("memory://")
    app.run_worker(burst=True)
    assert heard(manager) == ["READY=1", "STOPPING=1"]


def test_the_watchdog_is_fed_while_the_loop_turns(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "4000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    loop = Turning()
    with reported(loop):  # type: ignore[arg-type]
        assert heard(manager)[0] == "READY=1"
        wait_for(lambda: "WATCHDOG=1" in heard(manager), "it is fed")
        loop.ago_us = 61_000_000
        time.sleep(0.02)
        heard(manager)
        time.sleep(0.02)
        assert heard(manager) == []
    assert heard(manager) == ["STOPPING=1"]


def test_without_a_manager_nothing_is_sent(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "1000")
    monkeypatch.delenv("NOTIFY_SOCKET")
    with reported(Turning()):  # type: ignore[arg-type]
        pass
    assert heard(manager) == []
