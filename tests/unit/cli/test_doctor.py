"""`dueline doctor` and `dueline version` (H15)."""

import json

import pytest

from dueline import Dueline, __version__
from dueline.coordination.worker_registry import Presence, announce
from dueline.core.clock import SECOND_US
from tests.harness.shell import Shell


def test_a_worker_that_dropped_answers_is_told(shell: Shell) -> None:
    app = Dueline("sqlite:///jobs.db")
    now_us = app.clock.wall_us()
    presence = Presence("host:1:ab", ("default",), (), 4, 0, now_us, now_us, 0, stray_answers=12)
    announce(
        app.store, presence, version=app.queues.engine.ids.token(), beat_every_us=60 * SECOND_US
    )
    app.close()
    answer = shell.app("doctor")
    assert answer.code == 0
    assert "worker host:1:ab: warning" in answer.err
    assert answer.why == "12 answers of the server belonged to no request of it"


def test_it_prints_what_the_store_promises_and_what_was_checked(shell: Shell) -> None:
    answer = shell.app("doctor")
    assert (answer.code, answer.err) == (0, "")
    assert "survives loss of power" in answer.out
    assert "integrity              good     no damage found" in answer.out
    data = shell.app("doctor", "-o", "json").data
    assert set(data) == {"store", "checks", "workers"}
    assert data["store"]["survives a process crash"] == "nothing is lost"


def test_a_queue_that_nobody_serves_is_only_a_warning(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1")
    answer = shell.app("doctor")
    assert answer.code == 0
    assert answer.why == "no live worker serves it; jobs that are ready: 1"
    assert "try: Start one: dueline worker MODULE:APP -q default" in answer.err


def test_a_worker_whose_clock_is_off_exits_6(shell: Shell) -> None:
    app = Dueline("sqlite:///jobs.db")
    now_us = app.clock.wall_us()
    presence = Presence("host:1:ab", ("default",), (), 4, 0, now_us, now_us, -40 * SECOND_US)
    version = app.queues.engine.ids.token()
    announce(app.store, presence, version=version, beat_every_us=60 * SECOND_US)
    app.close()
    answer = shell.app("doctor")
    assert answer.code == 6
    assert "host:1:ab" in answer.out
    assert answer.why == "40s behind the store's"


def test_damage_exits_6(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "dueline.stores.sqlite.store.SqliteStore.describe",
        lambda _: {"store": "sqlite", "schema": "1", "integrity": "row 7 missing from index"},
    )
    answer = shell.app("doctor")
    assert answer.code == 6
    assert answer.why == "row 7 missing from index"


def test_the_version_is_printed(shell: Shell) -> None:
    assert shell("version").out == f"dueline {__version__}\n"
    assert shell("--version").out == f"dueline {__version__}\n"
    assert json.loads(shell("version", "-o", "json").out)["data"]["version"] == __version__
