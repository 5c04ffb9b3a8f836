"""URLs of stores in Redis."""

import pytest

from dueline.api.connect import open_store
from dueline.core.errors import ConfigError
from dueline.stores.redis.address import address_of


def test_a_url_names_server_database_and_prefix() -> None:
    address = address_of("rediss://shop:p%40ss@db:7000/3", {"prefix": "jobs", "timeout": "2s"})
    assert dict(address.settings) == {
        "host": "db", "port": 7000, "db": 3, "username": "shop", "password": "p@ss",
        "ssl_check_hostname": True,
    }  # fmt: skip
    assert (address.prefix, address.is_tls, address.timeout_us) == ("jobs", True, 2_000_000)
    assert repr(address) == "rediss://db:7000/3?prefix=jobs"


def test_a_url_may_name_a_socket() -> None:
    address = address_of("unix:///run/redis.sock", {"db": "2"})
    assert (address.settings["path"], address.settings["db"]) == ("/run/redis.sock", 2)


def test_a_url_may_name_sentinels() -> None:
    address = address_of("valkeys+sentinel://shop:pw@one:1,two,[::1]:3/main/2", {"wait": "2"})
    assert address.sentinels == (("one", 1), ("two", 26379), ("::1", 3))
    assert (address.service, address.wait, address.is_tls) == ("main", 2, True)
    login = {"db": 2, "username": "shop", "password": "pw"}
    assert dict(address.settings) == {**login, "ssl_check_hostname": True}
    assert repr(address) == "valkeys+sentinel://one:1,two:26379,::1:3/main/2"


def test_a_url_may_name_nodes_of_a_cluster() -> None:
    address = address_of("rediss+cluster://shop:pw@one:1,two", {"prefix": "jobs"})
    assert address.nodes == (("one", 1), ("two", 6379))
    assert (address.host, address.is_tls) == ("one", True)
    login = {"db": 0, "username": "shop", "password": "pw"}
    assert dict(address.settings) == {**login, "ssl_check_hostname": True}
    assert repr(address) == "rediss+cluster://one:1,two:6379?prefix=jobs"


@pytest.mark.parametrize(
    "url",
    [
        "redis:",
        "redis://host/mail",
        "redis://host:port/0",
        "redis://host/0?prefix={x}",
        "redis://host/0?durability=all",
        "redis://host/0?wait=all",
        "redis://host/0?wait=0",
        "redis+sentinel://host:26379",
        "redis+sentinel://host:port/service/0",
        "redis+sentinel://host/service/mail",
        "redis+cluster://host/1",
        "redis+cluster://host:port",
        "redis://:secret#@host/0",
        "unix://",
    ],
)
def test_what_is_no_url_of_a_store_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as error:
        open_store(url)
    assert error.value.hint
    assert "secret" not in str(error.value)
