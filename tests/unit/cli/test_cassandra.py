"""`dueline migrate` and `dueline doctor` on a real Cassandra node (H15)."""

import secrets
import stat
from collections.abc import Iterator

import pytest

from dueline.api.connect import open_store
from tests.harness.cassandra_node import PATIENT, TABLES, expect_node, node_url
from tests.harness.keyspaces import session_on
from tests.harness.shell import Shell

expect_node()
pytestmark = pytest.mark.cassandra


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with node_url() as address:
        url = f"{address}/cli_{secrets.token_hex(4)}?{PATIENT}"
        yield url
        with session_on(url) as session:
            session.define([f"DROP KEYSPACE IF EXISTS {session.place.keyspace}"])


def test_a_keyspace_is_set_up_and_then_examined(shell: Shell, url: str) -> None:
    keyspace = url.rpartition("/")[2].partition("?")[0]
    answer = shell("--store", url, "migrate", "-o", "json")
    assert (answer.code, answer.err) == (0, "")
    assert answer.data["schema"] == "2"
    made = {f"keyspace {keyspace}", "table about", *(f"table {table}" for table in TABLES)}
    assert set(answer.data["made"]) == made
    answer = shell("--store", url, "migrate")
    assert (answer.code, answer.out) == (0, "schema  2\n")
    assert answer.err == "The schema is up to date.\n"

    answer = shell("--store", url, "doctor", "-o", "json")
    assert answer.code == 0
    verdicts = {check["check"]: check["verdict"] for check in answer.data["checks"]}
    assert verdicts.pop("replicas") in ("good", "warning")  # as many nodes as there are
    assert verdicts.pop("commit log") in ("good", "warning")
    assert verdicts.pop("server") in ("good", "warning")  # 5.0.8, where that is the node
    assert set(verdicts.values()) == {"good"}
    assert {"schema", "stray answers", "nodes' clocks", "replication", "consistency", "paxos"} < {
        *verdicts
    }

    with session_on(url) as session:
        simple = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        session.define([f"ALTER KEYSPACE {keyspace} WITH replication = {simple}"])
    answer = shell("--store", url, "doctor")
    assert answer.code == 0
    assert "dueline: replication: warning" in answer.err
    assert "dueline: replicas: warning" in answer.err
    assert "anywhere: 1; loss of one node stops the queue, and may lose jobs" in answer.err


def test_the_store_says_what_it_survives(shell: Shell, url: str) -> None:
    assert shell("--store", url, "migrate").code == 0
    store = open_store(url)
    told = store.describe()
    store.close()
    assert told["store"] == "cassandra"
    assert told["survives a process crash"] == "nothing is lost"
    assert told["survives loss of the machine"] == "no: one replica"


def test_settings_with_a_password_are_readable_by_their_owner_alone(shell: Shell, url: str) -> None:
    (shell.folder / "tasks.py").unlink()
    with_password = url.replace("cassandra://", "cassandra://ana:pw@")
    answer = shell("--store", with_password, "init")
    assert answer.code == 0
    file = shell.folder / "dueline.toml"
    assert "ana:pw@" in file.read_text(encoding="utf-8")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "pw@" not in answer.out + answer.err
    assert "password_file" in answer.err
