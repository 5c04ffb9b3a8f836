"""Addresses of Cassandra stores, judged without a driver."""

import ssl
import sys

import pytest

from dueline.clock import SECOND_US
from dueline.connect import open_store, queue_defaults
from dueline.errors import ConfigError
from dueline.settings import QueueSettings
from dueline.stores.cassandra_place import Place, place_of


def test_an_address_names_hosts_and_a_keyspace() -> None:
    place = place_of("cassandra://one,two/jobs", {})
    assert place == Place(["one", "two"], "jobs")
    assert (place.port, place.consistency, place.dc, place.remember) == (9042, "QUORUM", "", True)


def test_every_option_has_its_place() -> None:
    options = {"dc": "east", "consistency": "local_quorum", "remember": "0", "tls": "1"}
    place = place_of("cassandra://an%40a:p%3Ass@one:9043,two:9043/jobs", options)
    assert (place.user, place.password, place.port) == ("an@a", "p:ss", 9043)
    assert (place.dc, place.consistency, place.remember) == ("east", "LOCAL_QUORUM", False)
    assert place.tls is not None
    assert place.tls.verify_mode == ssl.CERT_REQUIRED


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
    ],
)
def test_a_wrong_address_is_told_what_is_wrong(
    url: str, options: dict[str, str], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        place_of(url, options)


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
