"""What `doctor` finds out about a server."""

from contextlib import closing

import pytest

from dueline.admin.health import examine
from dueline.api.connect import open_store
from dueline.cli import run
from dueline.core.check import Check
from dueline.core.clock import SystemClock
from tests.harness.queues import queues_on
from tests.harness.redis import StartServer
from tools.redis.server import HOST

pytestmark = [pytest.mark.redis, pytest.mark.slow]


def checks_of(url: str) -> dict[str, Check]:
    with closing(open_store(url)) as store:
        checks = examine(queues_on(store, SystemClock()).engine).checks
    return {check.name: check for check in checks}


def test_a_healthy_server_has_no_warning(start_server: StartServer) -> None:
    checks = checks_of(start_server("always").url)
    for name in ("server", "connections", "memory", "append-only file", "replicas that confirm"):
        assert checks[name].verdict == "good", checks[name]


@pytest.mark.parametrize(
    ("setting", "value", "advice"),
    [
        ("appendfsync", "no", "appendfsync everysec"),
        ("no-appendfsync-on-rewrite", "yes", "no-appendfsync-on-rewrite no"),
    ],
)
def test_settings_that_may_lose_jobs_are_named(
    start_server: StartServer, setting: str, value: str, advice: str
) -> None:
    server = start_server()
    server.ask("CONFIG", "SET", setting, value)
    check = checks_of(server.url)["append-only file"]
    assert (check.verdict, advice in check.advice) == ("warning", True), check


def test_a_server_that_keeps_nothing_is_named(start_server: StartServer) -> None:
    server = start_server(settings={"appendonly": "no"})
    check = checks_of(f"{server.url}?durability=none")["append-only file"]
    assert (check.verdict, "appendonly yes" in check.advice) == ("warning", True)


def test_settings_that_are_hidden_are_not_said_to_be_good(start_server: StartServer) -> None:
    server = start_server()
    server.ask("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-config")
    check = checks_of(server.url.replace("//", "//app:pw@"))["append-only file"]
    assert (check.verdict, "CONFIG GET" in check.advice) == ("warning", True), check


def test_memory_that_is_nearly_full_is_named(start_server: StartServer) -> None:
    server = start_server()
    assert checks_of(server.url)["memory"].verdict == "good"  # this loads the functions
    used = next(line for line in server.info("memory").splitlines() if "used_memory:" in line)
    server.ask("CONFIG", "SET", "maxmemory", str(int(int(used.partition(":")[2]) * 1.15)))
    check = checks_of(server.url)["memory"]
    assert (check.verdict, "maxmemory" in check.advice) == ("warning", True), check


def test_replicas_that_are_missing_are_named(start_server: StartServer) -> None:
    server, replica = start_server(), start_server()
    replica.ask("REPLICAOF", HOST, str(server.port))
    while "state=online" not in server.info("replication"):
        pass
    assert checks_of(f"{server.url}?wait=1")["replicas that confirm"].verdict == "good"
    replica.kill()
    while "connected_slaves:0" not in server.info("replication"):
        pass
    check = checks_of(f"{server.url}?wait=1&timeout=500ms")["replicas that confirm"]
    assert (check.verdict, "unknown" in check.advice) == ("bad", True), check


def test_the_command_says_what_survives(
    start_server: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["--store", start_server("always").url, "doctor"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "appendfsync always" in printed
    assert "a failover loses what they did not have" in printed
