"""A Cassandra node with passwords and TLS that falls silent in the middle (H15)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pytest

from dueline.api.application import Dueline
from dueline.cli import run
from dueline.core.codec import pack
from dueline.core.errors import ConfigError, DuelineError, EnqueueUnknown
from tests.harness.cassandra_node import PATIENT, expect_node
from tests.harness.certificates import make_identity
from tests.harness.keyspaces import refusal, session_on
from tests.harness.servers import migrate
from tools.cassandra.node import Node
from tools.cassandra.ring import Ring

if TYPE_CHECKING:
    from pathlib import Path

    from dueline.stores.cassandra.answers import Rows
    from dueline.stores.cassandra.session import Call

expect_node()
pytestmark = [pytest.mark.cassandra, pytest.mark.long]  # starts a node of its own

FIRST = 71
HOST = f"127.0.0.{FIRST}"
NAME = "node.dueline.test"
LOGIN = "cassandra:cassandra"
OLD_NUMBERS, NUMBERS = range(40), range(40, 80)


class Guarded(NamedTuple):
    """A node that asks for a password and speaks TLS, and the certificate it shows."""

    ring: Ring
    certificate: Path

    def url(self, *options: str, login: str = LOGIN, patience: str = PATIENT) -> str:
        """Give an address whose keyspace is set up."""
        told = "&".join([f"ca={self.certificate}", patience, *options])
        return f"cassandra://{login}@{HOST}/refusals?{told}"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    identity = make_identity(folder, name=NAME, address=HOST)
    ring = Ring(
        folder / "ring", first=FIRST, fast_start=True, logins=True, keystore=str(identity.keystore)
    )
    try:
        ring.start()
        node = Guarded(ring, identity.certificate)
        migrate(node.url())
        yield node
    finally:
        ring.remove()


# A node that does not let everybody in


@pytest.mark.long
def test_a_wrong_password_names_the_user_and_shows_no_password(guarded: Guarded) -> None:
    url = guarded.url(login="ann:secret")
    error = refusal(url)
    assert isinstance(error, ConfigError)
    assert "rejects the user ann" in error.message
    done = subprocess.run(
        [sys.executable, "-m", "dueline", "--store", url, "doctor"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (7, "")
    assert "ann" in done.stderr
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr


def test_an_address_without_a_user_is_not_let_in(guarded: Guarded) -> None:
    error = refusal(guarded.url(login=""))
    assert isinstance(error, ConfigError)
    assert "rejects a client without a user" in error.message


@pytest.mark.parametrize("name", ["", NAME])
def test_a_certificate_for_the_address_or_the_name_is_accepted(guarded: Guarded, name: str) -> None:
    assert refusal(guarded.url(*([f"name={name}"] if name else []))) is None


@pytest.mark.parametrize("name", ["other.dueline.test", "127.0.0.72"])
def test_a_certificate_for_another_name_is_refused(guarded: Guarded, name: str) -> None:
    error = refusal(guarded.url(f"name={name}"))
    assert isinstance(error, ConfigError)
    assert f"certificate is not valid for '{name}'" in error.message
    assert "name=NAME" in error.hint


def test_a_certificate_that_nobody_vouches_for_is_refused(guarded: Guarded) -> None:
    error = refusal(guarded.url().replace(f"ca={guarded.certificate}", "tls=1"))
    assert isinstance(error, ConfigError)
    assert "has a certificate that is not trusted" in error.message
    assert "ca=FILE" in error.hint


# Users who may do no more than they need to


def test_a_worker_needs_to_read_and_change_one_keyspace_alone(guarded: Guarded) -> None:
    url = guarded.url(login="worker:secret")
    with session_on(guarded.url()) as session:
        session.define(
            [
                "CREATE ROLE worker WITH PASSWORD = 'secret' AND LOGIN = true",
                "GRANT SELECT, MODIFY ON KEYSPACE refusals TO worker",
            ]
        )
    app = Dueline(url)
    done: list[int] = []

    @app.task(name="add")
    def add(number: int) -> None:
        done.append(number)

    add.enqueue_many([(number,) for number in range(5)])
    app.run_worker(burst=True)
    assert sorted(done) == list(range(5))
    told = app.store.describe()
    assert told["settings"] == "hidden"
    assert told["survives loss of power"] == "unknown"
    assert {"server", "replicas", "compaction"} < told.keys()
    with session_on(guarded.url()) as session:
        for keyspace in ("system_views", "system_distributed"):
            session.define([f"GRANT SELECT ON KEYSPACE {keyspace} TO worker"])
    told = app.store.describe()
    app.close()
    assert "settings" not in told
    assert {"paxos", "commit log", "largest partition", "deleted rows a read (p99)"} < told.keys()
    refused = refusal(url.replace("/refusals", "/another"))
    assert isinstance(refused, ConfigError)


def test_who_sets_a_keyspace_up_needs_to_create_and_alter_it(guarded: Guarded) -> None:
    with session_on(guarded.url()) as session:
        session.define(
            [
                "CREATE ROLE founder WITH PASSWORD = 'secret' AND LOGIN = true",
                "CREATE ROLE digger WITH PASSWORD = 'secret' AND LOGIN = true",
                "GRANT CREATE ON ALL KEYSPACES TO founder",
            ]
        )
    migrate(guarded.url(login="founder:secret").replace("/refusals", "/founded"))
    with pytest.raises(ConfigError, match="rejects the user digger"):
        migrate(guarded.url(login="digger:secret").replace("/refusals", "/dug"))


# A node that falls silent in the middle

SEND_AGAIN = """
import sys
from pathlib import Path
from dueline import Dueline
from dueline.core.codec import unpack
from dueline.core.job import Job
from dueline.core.lane import Lane

app = Dueline(sys.argv[1])
rows = unpack(Path(sys.argv[2]).read_bytes())
app.queues.enqueue_again([Job._make([Lane(*lane), *cells]) for lane, *cells in rows])
app.close()
"""

TABLES_WRITTEN = ("lanes", "ids", "jobs")
HALF, LOOK = "half of jobs", "look"
SILENT_S = 3.0


def pause_before(step: str, monkeypatch: pytest.MonkeyPatch, app: Dueline, node: Node) -> None:
    """Pause the node before the next write into a table, or amid it, or before the look."""
    from cassandra.cluster import EXEC_PROFILE_DEFAULT  # noqa: PLC0415  (may be absent)

    from dueline.stores.cassandra.store import CassandraStore  # noqa: PLC0415  (needs the driver)

    assert isinstance(app.store, CassandraStore)
    session = app.store._session
    assert session._cluster is not None
    profile = session._cluster.profile_manager.profiles[EXEC_PROFILE_DEFAULT]
    write_many, read_many = session.write_many, session.read_many
    written: set[str] = set()

    def fall_silent() -> None:
        node.pause()
        profile.request_timeout = SILENT_S  # from now on no answer comes

    def write(batches: Sequence[Sequence[Call]]) -> list[DuelineError | None]:
        (table,) = {
            table
            for table in TABLES_WRITTEN
            if any(f".{table} " in text for batch in batches for text, _ in batch)
        }
        written.add(table)
        half = len(batches) // 2 if (table, step) == ("jobs", HALF) else 0
        errors = write_many(batches[:half])
        if half or table == step:
            fall_silent()
        return errors + write_many(batches[half:])

    def read(calls: Sequence[Call]) -> list[Rows]:
        if step == LOOK and "jobs" in written:
            fall_silent()
        return read_many(calls)

    def write_all(batches: Sequence[Sequence[Call]]) -> None:
        for error in write(batches):
            if error is not None:
                raise error

    monkeypatch.setattr(session, "write_many", write)
    monkeypatch.setattr(session, "write", write_all)
    monkeypatch.setattr(session, "read_many", read)


def send_again(url: str, file: Path) -> None:
    """Enqueue the stored jobs again, from another process."""
    done = subprocess.run(
        [sys.executable, "-c", SEND_AGAIN, url, str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.parametrize("step", [*TABLES_WRITTEN, HALF, LOOK])
def test_jobs_of_unknown_fate_are_neither_lost_nor_doubled_by_another_process(
    guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    (node,) = guarded.ring.nodes
    queue = step.replace(" ", "-")
    ran: list[int] = []
    app = Dueline(guarded.url())
    work = app.task(name="work", queue=queue)(ran.append)
    work.enqueue_many([(number,) for number in OLD_NUMBERS])
    pause_before(step, monkeypatch, app, node)
    try:
        with pytest.raises(EnqueueUnknown, match="did not say whether") as raised:
            # In lanes of their own, so that they have to be listed.
            work.using(priority=1).enqueue_many([(number,) for number in NUMBERS])
    finally:
        node.resume()
    app.close()
    unknown = raised.value.jobs
    assert len(unknown) == len(NUMBERS)  # none of them was looked at

    file = tmp_path / "jobs"
    file.write_bytes(pack(list(unknown)))
    send_again(guarded.url(), file)

    app = Dueline(guarded.url())
    app.task(name="work", queue=queue)(ran.append)
    lanes = app.queues.engine.lanes_of(queue)
    rows = [app.store.scan(lane, after=None, until_us=None, limit=1000).jobs for lane in lanes]
    assert len({job.id for some in rows for job in some}) == len(OLD_NUMBERS) + len(NUMBERS)
    app.run_worker([queue], burst=True)
    app.close()
    assert sorted(ran) == [*OLD_NUMBERS, *NUMBERS]


@pytest.mark.long
def test_a_node_that_was_silent_from_the_start_exits_3(
    guarded: Guarded, capsys: pytest.CaptureFixture[str]
) -> None:
    (node,) = guarded.ring.nodes
    node.pause()
    try:
        code = run(["--store", guarded.url(patience="timeout=10s"), "jobs", "list"])
    finally:
        node.resume()
    assert code == 3
    assert "does not answer" in capsys.readouterr().err
