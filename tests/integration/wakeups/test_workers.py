"""Workers that start a job only because they were woken (F3)."""

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from dueline.core import wakeup as local
from dueline.core.engine import Engine
from dueline.core.wakeup import Wakeup
from dueline.stores.sqlite import wakeup
from dueline.worker import backoff
from dueline.worker.worker import Worker
from tests.harness.programs import wait_for
from tests.harness.woken_workers import WORKER, app_on

WAIT_S = 60.0


@pytest.mark.sqlite
def test_another_process_wakes_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # O1; SIGTERM ends a wait of an hour
    # This worker does not look more often while others may not know of it yet.
    monkeypatch.setattr(wakeup, "SOCKETS_AGE_US_MAX", -1)
    url = f"sqlite:///{tmp_path}/jobs.db"
    worker = subprocess.Popen([sys.executable, "-c", WORKER, url], stdout=subprocess.PIPE)
    try:
        app = app_on(url)
        echo, pass_on = app.task_named("tests.echo"), app.task_named("tests.pass_on")
        for text in ("one", "two", "three"):
            assert echo.enqueue(text).result(timeout=WAIT_S) == text
        inner = pass_on.enqueue("from a handler").result(timeout=WAIT_S)
        assert app.job(inner).result(timeout=WAIT_S) == "from a handler"
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(WAIT_S) == 0
        assert not (tmp_path / "jobs.db-wake").exists()
        app.close()
    finally:
        worker.kill()
        worker.communicate()


@pytest.mark.parametrize("scheme", ["memory", "sqlite"])
def test_a_worker_in_this_process_is_woken(
    tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # O1
    for listener in (local._LocalListener, wakeup.SocketListener):
        monkeypatch.setattr(listener, "gap_us_max", 3_600_000_000)
    monkeypatch.setattr(backoff, "GAP_US_MIN", 3_600_000_000)
    workers: list[Worker] = []

    def remembered(*parts: Any, **more: Any) -> Worker:  # noqa: ANN401  (passed on)
        workers.append(Worker(*parts, **more))
        return workers[0]

    monkeypatch.setattr("dueline.api.launch.Worker", remembered)
    app = app_on(f"sqlite:///{tmp_path}/jobs.db" if scheme == "sqlite" else "memory://")
    running = threading.Thread(target=app.run_worker)
    running.start()
    wait_for(lambda: workers, "it listens")  # a sender lists sockets once a second
    try:
        echo = app.task_named("tests.echo")
        for text in ("one", "two", "three"):
            assert echo.enqueue(text).result(timeout=WAIT_S) == text
        with monkeypatch.context() as patch:  # F3: as when permits come free for it
            patch.setattr(Engine, "wake", lambda _engine, _places: None)
            last = echo.enqueue("four")
        app.queues.engine.wakeups.wake([Wakeup(workers[0].name)])
        assert last.result(timeout=WAIT_S) == "four"
    finally:
        workers[0].stop()
        running.join()
    app.close()
