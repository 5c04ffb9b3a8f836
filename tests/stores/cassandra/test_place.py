"""Addresses of Cassandra stores, judged without a driver."""

import ssl
import sys

import pytest

from dueline.api.connect import open_store, queue_defaults
from dueline.core.clock import SECOND_US
from dueline.core.errors import ConfigError
from dueline.core.queue_settings import QueueSettings
from dueline.stores.cassandra.url import Place, place_of


def test_an_address_names_hosts_and_a_keyspace() -> None:
    place = place_of("cassandra://127.0.0.1,127.0.0.2/jobs", {})
    assert place == Place(["127.0.0.1", "127.0.0.2"], "jobs", wake=("", 0))
    assert place_of("cassandra://127.0.0.1/jobs", {"wake": "off"}).wake is None
    assert (place.port, place.consistency, place.dc, place.remember) == (9042, "QUORUM", "", True)
    assert (place.timeout_us, place.tls, place.name) == (10 * SECOND_US, None, "")


def test_every_option_has_its_place() -> None:
    options = {
        "dc": "east",
        "consistency": "local_quorum",
        "remember": "0",
        "timeout": "1.5s",
        "tls": "1",
        "name": "node.example",
    }
    place = place_of("cassandra://an%40a:p%3Ass@one:9043,two:9043/jobs", options)
    assert (place.user, place.password, place.port) == ("an@a", "p:ss", 9043)
    assert (place.dc, place.consistency, place.remember) == ("east", "LOCAL_QUORUM", False)
    assert (place.timeout_us, place.name) == (1_500_000, "node.example")
    assert place.tls is not None
    assert place.tls.verify_mode == ssl.CERT_REQUIRED
    assert place.tls.check_hostname


@pytest.mark.parametrize(
    ("hosts", "options", "is_encrypted"),
    [
        ("127.0.0.1,localhost,127.0.0.3", {}, False),
        ("127.0.0.1", {"tls": "1"}, True),
        ("127.0.0.1", {"name": "node"}, True),
        ("10.0.0.1", {}, True),
        ("127.0.0.1,10.0.0.1", {}, True),
        ("node.example", {}, True),
        ("node.example", {"insecure": "0"}, True),
        ("node.example", {"insecure": "1"}, False),
        ("node.example", {"insecure": "1", "tls": "0"}, False),
    ],
)
def test_what_leaves_the_machine_is_encrypted(
    *, hosts: str, options: dict[str, str], is_encrypted: bool
) -> None:
    place = place_of(f"cassandra://{hosts}/jobs", options)
    assert (place.tls is not None) == is_encrypted


def test_a_place_never_shows_its_password() -> None:
    place = place_of("cassandra://ana:secret@one/jobs", {})
    assert "secret" not in f"{place!r} {place}"
    assert repr(place) == "cassandra://one/jobs"


@pytest.mark.parametrize(
    ("url", "options", "says"),
    [
        ("cassandra://one", {}, "not a keyspace"),
        ("cassandra://one/Jobs", {}, "not a keyspace"),
        ("cassandra://one/a;drop", {}, "not a keyspace"),
        ("cassandra:///jobs", {}, "not a host"),
        ("cassandra://one,/jobs", {}, "not a host"),
        ("cassandra://one:x/jobs", {}, "not a host"),
        ("cassandra://one:1,two:2/jobs", {}, "one port"),
        ("cassandra://one/jobs", {"speed": "11"}, "no option 'speed'"),
        ("cassandra://one/jobs", {"consistency": "ONE"}, "not ONE"),
        ("cassandra://one/jobs", {"remember": "yes"}, "1 or 0"),
        ("cassandra://one/jobs", {"ca": "/nowhere.pem"}, "certificates cannot be read"),
        ("cassandra://one/jobs", {"tls": "0"}, "write insecure=1"),
        ("cassandra://127.0.0.1,one/jobs", {"tls": "0"}, "write insecure=1"),
        ("cassandra://one/jobs", {"tls": "1", "insecure": "1"}, "has both TLS and insecure"),
        ("cassandra://one/jobs", {"ca": "/ca.pem", "insecure": "1"}, "only with TLS"),
        ("cassandra://127.0.0.1/jobs", {"ca": "/ca.pem", "tls": "0"}, "only with TLS"),
        ("cassandra://one/jobs", {"timeout": "soon"}, "timeout='soon' is not a duration"),
        ("cassandra://one/jobs", {"timeout": "0s"}, "timeout='0s' is out of range"),
        ("cassandra://one/jobs", {"timeout": "1h"}, "timeout='1h' is out of range"),
    ],
)
def test_a_wrong_address_is_told_what_is_wrong(
    url: str, options: dict[str, str], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        place_of(url, options)


def test_what_to_try_for_a_wrong_option_speaks_of_that_option() -> None:
    with pytest.raises(ConfigError) as caught:
        place_of("cassandra://one/jobs", {"consistency": "ONE"})
    assert "LOCAL_QUORUM" in caught.value.hint
    assert "cassandra://host" not in caught.value.hint


def test_an_absent_driver_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] == "cassandra" or name.startswith("dueline.stores.cassandra"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cassandra", None)
    with pytest.raises(ConfigError, match=r"pip install 'dueline\[cassandra\]'"):
        open_store("cassandra://one/jobs")


def test_queues_of_a_cassandra_store_start_with_small_lanes() -> None:
    settings = QueueSettings(shards=8, shards_read=8, width_us=10 * SECOND_US)
    assert queue_defaults("cassandra://one/jobs") == settings
    assert queue_defaults("sqlite:///jobs.db") == QueueSettings()
