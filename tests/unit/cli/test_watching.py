"""`dueline workers`, `stats`, `health`."""

import json
import signal
import time
from pathlib import Path

from dueline.core.version import VERSION
from tests.harness.shell import WAIT_S, Shell


def test_no_worker_is_no_error(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1")
    answer = shell.app("workers", "list")
    assert (answer.code, answer.out, answer.err) == (0, "", "No live workers.\n")


def test_live_workers_are_listed(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1")
    worker = shell.spawn("worker", "tasks:app", "-q", "default", "-c", "3")
    try:
        give_up = time.monotonic() + WAIT_S
        data: list[dict[str, object]] = []
        while not data:
            assert time.monotonic() < give_up
            data = shell.app("workers", "list", "-o", "json").data
        (shown,) = data
        assert f":{worker.pid}:" in str(shown["worker"])
        assert (shown["queues"], shown["slots"], shown["version"]) == (["default"], 3, VERSION)
        assert isinstance(shown["clock_offset_s"], float)
        heads = shell.app("workers", "list").out.splitlines()[0].split()
        assert heads == [
            *("WORKER", "QUEUES", "HELD", "RUNNING", "SLOTS", "LOST", "STATE"),
            *("VERSION", "CLOCK", "OFFSET", "BEAT"),
        ]
        assert shell.app("health", "--ready").code == 0
    finally:
        worker.terminate()
        worker.communicate(timeout=WAIT_S)


def test_stats_count_expired_jobs(shell: Shell) -> None:
    # C15
    shell.enqueue("tasks.add", "1", "--expires", "1ms")
    shell.enqueue("tasks.add", "2")
    shell.work()
    data = shell.app("stats", "-o", "json").data
    assert (data["ended"], data["done"], data["failed"], data["expired"]) == (2, 1, 0, 1)


def test_stats_have_numbers_and_rates(shell: Shell) -> None:
    for number in range(3):
        shell.enqueue("tasks.add", str(number))
    shell.enqueue("tasks.fail", "no")
    shell.work()
    shell.enqueue("tasks.add", "1", "--after", "1h")
    data = shell.app("stats", "-o", "json").data
    assert (data["ended"], data["done"], data["failed"]) == (4, 3, 1)
    assert data["done_per_second"] == round(3 / data["span_s"], 2)
    assert 0 <= data["late_p50_s"] <= data["late_p99_s"]
    (default,) = [queue for queue in data["queues"] if queue["queue"] == "default"]
    assert (default["scheduled"], default["dead"]) == (1, 1)
    out = shell.app("stats").out
    assert "done per second" in out
    assert "QUEUE" in out


def test_stats_of_an_empty_store(shell: Shell) -> None:
    answer = shell("--store", "sqlite:///jobs.db", "stats", "-o", "json")
    assert answer.data["ended"] == 0
    assert answer.data["late_p99"] is None


def test_stats_are_watched_until_interrupted(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1")
    watch = shell.spawn("--app", "tasks:app", "stats", "--watch", "0.1", "-o", "ndjson")
    try:
        assert watch.stdout is not None
        for _ in range(3):
            assert json.loads(watch.stdout.readline())["queues"]
        watch.send_signal(signal.SIGINT)
        _, err = watch.communicate(timeout=WAIT_S)
        assert (watch.returncode, err) == (130, "")
    finally:
        watch.kill()
        watch.communicate()


def test_health_is_a_line_and_a_code(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1", "--after", "1h")
    answer = shell.app("health")
    nobody = "monitor: no worker is elected, so nothing is deleted when its retention ends"
    assert (answer.code, answer.out) == (0, f"good: store: it can be written; {nobody}\n")
    assert shell.app("health", "--ready").code == 0
    shell.enqueue("tasks.add", "1")
    assert shell.app("health").code == 0
    answer = shell.app("health", "--ready")
    assert answer.code == 6
    assert answer.out.startswith("bad: queue default: no live worker serves it, and the oldest")
    assert shell.app("health", "--max-age", "1h").code == 6
    data = shell.app("health", "--ready", "-o", "json").data
    assert data["healthy"] is False
    assert [check["verdict"] for check in data["checks"]] == ["good", "good", "bad"]
    shell.app("queues", "pause", "default")
    assert shell.app("health", "--ready").code == 0


def test_a_store_that_cannot_be_reached_is_not_healthy(shell: Shell) -> None:
    Path("jobs.db").write_bytes(b"no database at all, " * 100)
    answer = shell("--store", "sqlite:///jobs.db", "health")
    assert answer.code == 6
    assert answer.out.startswith("bad: store: ")
    assert len(answer.out.splitlines()) == 1
    assert shell("health").code == 7
