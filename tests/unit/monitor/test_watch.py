"""The thread that does the chores, beside a worker and alone (R7)."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dueline import Dueline
from dueline.api.connect import open_store
from dueline.api.launch import make_worker, run
from dueline.api.maintenance import make_maintenance_threads
from dueline.api.worker_plan import plan_of
from dueline.coordination.leases import holder_of
from dueline.coordination.worker_registry import present
from dueline.core.errors import StoreUnavailable
from dueline.core.process_identity import Whereabouts, is_gone, own
from dueline.core.store import Store
from dueline.monitor.monitor import Monitor

WAIT_S = 60


def wait(is_so: Callable[[], object]) -> None:
    """Wait until something is so."""
    give_up_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < give_up_s, "it never came to be"
        time.sleep(0.01)


def is_held(store: Store) -> bool:
    """Tell whether somebody is the monitor."""
    grant = holder_of(store)
    return grant is not None and grant.until_us > store.clock_us()


@pytest.mark.parametrize("monitor", [True, False])
def test_a_worker_stands_for_the_office_unless_it_is_told_not_to(
    tmp_path: Path, *, monitor: bool
) -> None:
    app = Dueline(f"sqlite:///{tmp_path}/q.db")
    plan = plan_of(["default"], 1, 1, 0, monitor=monitor)
    worker = make_worker(app, plan)
    thread = threading.Thread(target=run, args=(app, plan, worker))
    thread.start()
    wait(lambda: present(app.store))
    if monitor:
        wait(lambda: is_held(app.store))
        grant = holder_of(app.store)
        assert grant is not None
        assert grant.holder == worker.name
    worker.stop()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert not is_held(app.store)
    assert (holder_of(app.store) is None) != monitor
    app.close()


def test_a_burst_does_no_chores() -> None:
    assert not plan_of(["default"], 1, 1, 0, burst=True).monitor


def test_whatever_fails_in_a_chore_the_watch_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = Dueline("memory://")
    watch = make_maintenance_threads(app.queues, "w")
    for error, word in ((StoreUnavailable("away"), "has to wait"), (KeyError("k"), "failed")):

        def fail(_: Monitor, error: Exception = error) -> int:
            raise error

        monkeypatch.setattr(Monitor, "step", fail)
        assert watch._step() > 0
        assert word in caplog.messages[-1]


def start_alone(place: Path) -> subprocess.Popen[str]:
    """Run `dueline monitor` in a process of its own."""
    command = [sys.executable, "-m", "dueline", "monitor", "--store", f"sqlite:///{place}"]
    return subprocess.Popen(command, text=True, stderr=subprocess.PIPE)


@pytest.mark.slow
def test_it_runs_alone_until_it_is_told_to_stop_and_gives_the_office_back(tmp_path: Path) -> None:
    place = tmp_path / "q.db"
    store = open_store(f"sqlite:///{place}")
    process = start_alone(place)
    try:
        wait(lambda: is_held(store))
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.communicate()
    assert not is_held(store)
    store.close()


def test_a_process_that_was_killed_is_gone_and_one_that_runs_is_not(tmp_path: Path) -> None:
    if not own().space:
        pytest.skip("only Linux tells")
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    other = Whereabouts(own().space, process.pid, stat[19])
    assert not is_gone(other, own())
    assert is_gone(other._replace(started="1"), own())  # its number was given again
    assert not is_gone(other._replace(space="elsewhere"), own())
    assert not is_gone(other, Whereabouts("", 0, ""))
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(other, own())  # though nobody has asked how it ended
    process.communicate()
    assert is_gone(other, own())


def test_this_process_is_not_gone() -> None:
    assert not is_gone(own(), own())
