"""The tool that runs Cassandra, without one."""

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.cassandra import CassandraError, Node, Ring, cql
from tools.cassandra.__main__ import main
from tools.cassandra.config import (
    Settings,
    cassandra_yaml,
    daemon_command,
    nodetool_command,
    store_url,
)
from tools.cassandra.jars import fetch_jars, find_java, java_version
from tools.cassandra.node import require_free

ALONE = "127.0.0.97"
"""Nobody calls from here, as all do from 127.0.0.1: no call takes a port that was given back."""

JAVA_17 = 'openjdk version "17.0.15" 2025-04-15'


def lines(settings: Settings) -> list[str]:
    return cassandra_yaml(settings).splitlines()


def put_program(folder: Path, name: str, script: str) -> None:
    """Put a program on a search path."""
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the whole search path."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return folder


def test_three_nodes_share_the_token_range_and_know_each_other(tmp_path: Path) -> None:
    rings = [lines(Settings(tmp_path, number=number, nodes=3)) for number in (1, 2, 3)]
    tokens = [line for ring in rings for line in ring if line.startswith("initial_token")]
    assert tokens == [
        "initial_token: -9223372036854775808",
        "initial_token: -3074457345618258603",
        "initial_token: 3074457345618258602",
    ]
    for number, ring in enumerate(rings, start=1):
        assert f"listen_address: 127.0.0.{number}" in ring
        assert f"rpc_address: 127.0.0.{number}" in ring
        assert '      - seeds: "127.0.0.1:7000,127.0.0.2:7000,127.0.0.3:7000"' in ring


def test_a_node_syncs_its_commit_log_before_it_acknowledges_unless_told_otherwise(
    tmp_path: Path,
) -> None:
    batch = lines(Settings(tmp_path))
    assert "commitlog_sync: batch" in batch
    assert not [line for line in batch if line.startswith("commitlog_sync_period")]
    periodic = lines(Settings(tmp_path, commitlog="periodic"))
    assert "commitlog_sync: periodic" in periodic
    assert "commitlog_sync_period: 1000ms" in periodic


def test_every_node_uses_the_second_paxos(tmp_path: Path) -> None:
    assert "paxos_variant: v2" in lines(Settings(tmp_path))


def test_a_node_lets_everybody_in_unless_told_otherwise(tmp_path: Path) -> None:
    assert "authenticator: AllowAllAuthenticator" in lines(Settings(tmp_path))
    assert "authenticator: PasswordAuthenticator" in lines(Settings(tmp_path, logins=True))


def test_a_node_with_a_keystore_speaks_tls_too(tmp_path: Path) -> None:
    assert "client_encryption_options:" not in lines(Settings(tmp_path))
    written = lines(Settings(tmp_path, keystore="/keys/node.p12"))
    start = written.index("client_encryption_options:")
    assert {"  enabled: true", "  optional: true", "  keystore: /keys/node.p12"} < {
        *written[start + 1 :]
    }


@pytest.mark.parametrize("keystore", ["", "/keys/node.p12"])
def test_no_setting_is_written_twice(tmp_path: Path, keystore: str) -> None:
    settings = Settings(tmp_path, keystore=keystore)
    names = [line.partition(":")[0] for line in lines(settings) if line[:1].isalpha()]
    assert len(names) == len(set(names))


def test_a_node_keeps_everything_in_its_folder(tmp_path: Path) -> None:
    command = daemon_command(Settings(tmp_path), java="java", jars=Path("/jars"))
    assert f"-Dcassandra.config=file://{tmp_path}/config/cassandra.yaml" in command
    assert f"-Dcassandra.storagedir={tmp_path}" in command
    assert command[-2:] == [
        f"{tmp_path}/config:/jars/*",
        "org.apache.cassandra.service.CassandraDaemon",
    ]


def test_no_flag_gives_up_durability(tmp_path: Path) -> None:
    for settings in (Settings(tmp_path), Settings(tmp_path, fast_start=True)):
        command = " ".join(daemon_command(settings, java="java", jars=Path("/jars")))
        assert "unsafesystem" not in command
        assert "skip_sync" not in command
    lazy = daemon_command(Settings(tmp_path, lazy=True), java="java", jars=tmp_path)
    assert "-Dcassandra.unsafesystem=true" in lazy  # it says so


def test_a_fast_start_compiles_less(tmp_path: Path) -> None:
    slow = daemon_command(Settings(tmp_path), java="java", jars=tmp_path)
    fast = daemon_command(Settings(tmp_path, fast_start=True), java="java", jars=tmp_path)
    assert set(fast) - set(slow) == {"-XX:TieredStopAtLevel=1"}


def test_nodetool_talks_to_its_own_node(tmp_path: Path) -> None:
    settings = Settings(tmp_path, number=2, nodes=3)
    command = nodetool_command(settings, ["status", "k"], java="java", jars=tmp_path)
    assert command[-4:] == ["-p", "7102", "status", "k"]


def test_rings_with_other_addresses_share_no_port(tmp_path: Path) -> None:
    rings = [Ring(tmp_path, nodes=3), Ring(tmp_path, nodes=3, first=11)]
    used = [address for ring in rings for node in ring.nodes for address in node.settings.addresses]
    assert len(used) == len(set(used)) == 18


def test_the_url_names_all_hosts_and_the_data_centre(tmp_path: Path) -> None:
    assert store_url(["127.0.0.1"], "k") == "cassandra://127.0.0.1/k?dc=datacenter1"
    assert Ring(tmp_path, nodes=3).url() == (
        "cassandra://127.0.0.1,127.0.0.2,127.0.0.3/dueline?dc=datacenter1"
    )


@pytest.mark.parametrize(
    ("answer", "version"), [(JAVA_17, 17), ('java version "1.8.0_402"', 1), ("not java", None)]
)
def test_the_version_of_java_is_read_from_what_it_prints(answer: str, version: int | None) -> None:
    assert java_version(answer) == version


@pytest.mark.usefixtures("programs")
def test_without_java_the_error_says_what_to_install() -> None:
    with pytest.raises(CassandraError, match="no java on the search path: install a Java 17"):
        find_java()


def test_another_java_is_refused(programs: Path) -> None:
    put_program(programs, "java", "echo 'openjdk version \"21.0.1\"' >&2")
    with pytest.raises(CassandraError, match=r"runs here on Java 17 and .* is 21"):
        find_java()


def test_java_home_goes_before_the_search_path(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_program(programs, "java", "echo 'openjdk version \"21.0.1\"' >&2")
    (tmp_path / "home" / "bin").mkdir(parents=True)
    put_program(tmp_path / "home" / "bin", "java", f"echo '{JAVA_17}' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == str(tmp_path / "home" / "bin" / "java")


@pytest.mark.usefixtures("programs")
def test_without_maven_the_error_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(CassandraError, match="no mvn on the search path: install Apache Maven"):
        fetch_jars(tmp_path / "cache")


def test_a_fetch_that_fails_says_why_and_leaves_nothing(programs: Path, tmp_path: Path) -> None:
    put_program(programs, "mvn", "echo 'no route to host'; exit 1")
    with pytest.raises(CassandraError, match="no route to host"):
        fetch_jars(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_jars_are_fetched_once(programs: Path, tmp_path: Path) -> None:
    put_program(
        programs,
        "mvn",
        "for word; do case $word in\n"
        "-Dcassandra.version=*) version=${word#*=};;\n"
        "-DoutputDirectory=*) folder=${word#*=};;\n"
        "esac; done\n"
        '/bin/mkdir -p "$folder"; echo jar > "$folder/cassandra-all-$version.jar"',
    )
    old, new = (fetch_jars(tmp_path / "cache", version) for version in ("5.0.8", "5.0.9"))
    assert [jar.name for jar in old.iterdir()] == ["cassandra-all-5.0.8.jar"]
    assert [jar.name for jar in new.iterdir()] == ["cassandra-all-5.0.9.jar"]
    with pytest.raises(CassandraError, match=r"'\.\./5' is not a release"):
        fetch_jars(tmp_path / "cache", "../5")


def test_a_node_runs_the_release_it_is_told_to(tmp_path: Path) -> None:
    assert Ring(tmp_path).version == "5.0.9"
    assert Ring(tmp_path, version="5.0.8").nodes[0].settings.version == "5.0.8"


def test_a_port_in_use_is_named() -> None:
    with socket.create_server((ALONE, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(CassandraError, match=f"{ALONE}:{port} is not free"):
            require_free(ALONE, port)
    require_free(ALONE, port)


def test_a_ring_has_one_node_or_three(tmp_path: Path) -> None:
    with pytest.raises(CassandraError, match="1 or 3 nodes, not 2"):
        Ring(tmp_path, nodes=2)
    with pytest.raises(CassandraError, match=r"127\.0\.0\.1 to \.252"):
        Ring(tmp_path, first=253)


def test_a_ring_is_found_with_the_settings_it_was_started_with(tmp_path: Path) -> None:
    assert Ring.find(tmp_path) is None
    ring = Ring(tmp_path, nodes=3, commitlog="periodic", fast_start=True, first=21, version="5.0.8")
    ring.write()
    known = Ring.find(tmp_path)
    assert known is not None
    assert known.saved() == ring.saved()


def test_a_folder_keeps_the_size_of_its_ring(tmp_path: Path) -> None:
    Ring(tmp_path, nodes=3).write()
    with pytest.raises(CassandraError, match=r"holds a ring of 3 on 127\.0\.0\.1: remove"):
        Ring(tmp_path, nodes=1).start()


def test_removing_a_ring_leaves_other_files_alone(tmp_path: Path) -> None:
    ring = Ring(tmp_path)
    ring.write()
    (tmp_path / "node1").mkdir()
    (tmp_path / "letter").write_text("dear reader")
    ring.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["letter"]


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Node]:
    """A node whose process is a sleeping Python, which answers no CQL."""
    node = Node(Settings(tmp_path, first=99))
    node.run([sys.executable, "-c", "import time; time.sleep(3600)"])
    yield node
    node.kill()


def test_a_node_lives_until_it_is_killed(sleeper: Node) -> None:
    assert sleeper.is_alive()
    assert not sleeper.is_ready()
    sleeper.kill()
    assert not sleeper.is_alive()
    sleeper.kill()
    sleeper.stop()


def test_another_object_finds_the_same_process(sleeper: Node) -> None:
    other = Node(sleeper.settings)
    assert other.pid == sleeper.pid
    other.kill()
    assert sleeper.pid is None


def test_a_paused_node_can_be_stopped(sleeper: Node) -> None:
    sleeper.pause()
    assert sleeper.is_alive()
    sleeper.stop()
    assert not sleeper.is_alive()


def test_a_process_id_that_another_program_has_got_is_not_the_node(tmp_path: Path) -> None:
    node = Node(Settings(tmp_path))
    (tmp_path / "pid").write_text(f"{os.getpid()} 1\n")
    assert node.pid is None
    (tmp_path / "pid").write_text("half a li")
    assert node.pid is None


def test_a_node_that_ends_while_it_starts_shows_its_log(tmp_path: Path) -> None:
    node = Node(Settings(tmp_path, first=99))
    node.run([sys.executable, "-c", "print('no memory')"])
    with pytest.raises(CassandraError, match=r"ended while it was starting(.|\n)*no memory"):
        node.wait_ready()


def test_nobody_answers_where_nobody_listens() -> None:
    assert not cql.answers("127.0.0.99")
    assert not cql.reaches_all("127.0.0.99")


def test_status_and_down_are_calm_where_there_is_no_ring(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["down", "--dir", str(tmp_path)]) == 0
    assert main(["status", "--dir", str(tmp_path)]) == 1
    assert capsys.readouterr().out == "no ring here\n"


def test_an_error_is_one_line_and_an_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["nodetool", "--dir", str(tmp_path), "status"]) == 1
    assert capsys.readouterr().err == (
        "cassandra: There is no node 1 here: start a ring with up.\n"
    )


def test_it_runs_as_a_module() -> None:
    root = Path(__file__).parents[3]
    answer = subprocess.run(
        [sys.executable, "-m", "tools.cassandra", "--help"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "without a container" in answer.stdout
