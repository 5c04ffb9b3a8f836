"""Connections with TLS, and through a socket of the machine."""

import socket
from contextlib import closing
from pathlib import Path

import pytest

from dueline import Dueline
from dueline.api.connect import open_store
from dueline.core.errors import ConfigError, StoreUnavailable
from dueline.store_tests.calls import new_job
from tests.harness.certificates import Identity, make_identity
from tests.harness.redis import StartServer, free_port
from tools.redis import Server
from tools.redis.server import HOST

pytestmark = [pytest.mark.redis, pytest.mark.slow]
WITH_TLS = pytest.mark.parametrize("start_server", ["redis"], indirect=True)
"""Redis only: the Valkey of the wheel has no TLS."""


@pytest.fixture
def identity(tmp_path: Path) -> Identity:
    return make_identity(tmp_path, name="jobs.dueline.test", address=HOST)


def tls_settings(identity: Identity, port: int) -> dict[str, str]:
    return {
        "tls-port": str(port),
        "tls-auth-clients": "no",
        "tls-cert-file": str(identity.certificate),
        "tls-key-file": str(identity.key),
    }


@pytest.fixture
def address(start_server: StartServer, identity: Identity) -> str:
    """The host and port of a server that speaks TLS; its other port stays plain."""
    port = free_port()
    start_server(settings=tls_settings(identity, port))
    return f"{HOST}:{port}"


def run_a_job(url: str) -> None:
    """Run a job by a worker that is woken."""
    app = Dueline(url)

    @app.task(name="answer")
    def answer() -> int:
        return 42

    with app.worker():
        assert answer.enqueue().result(timeout=20) == 42
    app.close()


@WITH_TLS
@pytest.mark.parametrize("scheme", ["rediss", "valkeys"])
def test_an_authority_of_ones_own_is_trusted_by_its_file(
    address: str, identity: Identity, scheme: str
) -> None:
    run_a_job(f"{scheme}://{address}/0?ca={identity.certificate}")


@WITH_TLS
def test_nodes_of_a_cluster_speak_tls(start_server: StartServer, identity: Identity) -> None:
    port = free_port()
    settings = {
        **tls_settings(identity, port),
        "tls-ca-cert-file": str(identity.certificate),
        "tls-cluster": "yes",
        "cluster-enabled": "yes",
        "cluster-port": str(free_port()),
    }
    server = start_server(settings=settings)
    server.ask("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
    while "cluster_state:ok" not in "".join(server.lines("CLUSTER", "INFO")):
        pass
    run_a_job(f"rediss+cluster://{HOST}:{port}?ca={identity.certificate}")


@WITH_TLS
def test_a_certificate_that_nobody_vouches_for_is_refused(address: str) -> None:
    store = open_store(f"rediss://{address}/0")
    with closing(store), pytest.raises(ConfigError, match=r"(?i)certificate") as error:
        store.add([new_job(1)])
    assert "ca=" in error.value.hint


@WITH_TLS
def test_a_certificate_of_another_host_is_refused(address: str, identity: Identity) -> None:
    named = address.replace(HOST, "localhost")
    store = open_store(f"rediss://{named}/0?ca={identity.certificate}")
    with closing(store), pytest.raises(ConfigError, match=r"(?i)certificate"):
        store.add([new_job(1)])


@WITH_TLS
def test_a_missing_file_of_the_authority_is_named(address: str) -> None:
    with pytest.raises(ConfigError, match=r"/no/ca\.pem"):
        open_store(f"rediss://{address}/0?ca=/no/ca.pem")
    store = open_store(f"rediss://{address}/0?ca={__file__}")
    with closing(store), pytest.raises(ConfigError, match="certificate"):
        store.add([new_job(1)])


@WITH_TLS
def test_a_plain_connection_to_a_port_with_tls_says_so(address: str) -> None:
    store = open_store(f"redis://{address}/0?timeout=1s")
    with closing(store), pytest.raises(StoreUnavailable) as error:
        store.add([new_job(1)])
    assert "rediss://" in error.value.hint


def test_tls_to_a_plain_port_says_so(start_server: StartServer) -> None:
    url = start_server().url.replace("redis:", "rediss:")
    store = open_store(f"{url}?timeout=500ms")
    with closing(store), pytest.raises(StoreUnavailable) as error:
        store.add([new_job(1)])
    assert "redis://" in error.value.hint


@pytest.fixture
def server_with_socket(start_server: StartServer, tmp_path: Path) -> Server:
    return start_server(settings={"unixsocket": str(tmp_path / "s"), "requirepass": "right"})


def test_a_socket_is_used_like_a_port(server_with_socket: Server, tmp_path: Path) -> None:
    run_a_job(f"unix://:right@{tmp_path / 's'}?db=2")
    assert server_with_socket.is_ready()


def test_a_socket_on_which_nothing_listens_is_an_outage(tmp_path: Path) -> None:
    for url in (f"unix://{tmp_path / 'none'}", f"unix://{bound(tmp_path)}"):
        store = open_store(url)
        with closing(store), pytest.raises(StoreUnavailable):
            store.add([new_job(1)])


def bound(folder: Path) -> Path:
    """Return a socket whose process has ended."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "old"))
    return folder / "old"
