"""SQLite addresses in every spelling."""

from pathlib import Path

import pytest

from dueline import ConfigError, Dueline
from dueline.api.connect import missing_file, open_wakeups, sqlite_path
from dueline.core.clock import SystemClock
from dueline.stores.postgres.address import address_of


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///jobs.db", "jobs.db"),
        ("sqlite:///data/jobs.db", "data/jobs.db"),
        ("sqlite:////srv/jobs.db", "/srv/jobs.db"),
        ("sqlite:jobs.db", "jobs.db"),
        ("sqlite:data/jobs.db", "data/jobs.db"),
        ("sqlite://data/jobs.db", "data/jobs.db"),
        ("sqlite://Data/jobs.db", "Data/jobs.db"),
        ("sqlite://jobs.db", "jobs.db"),
        ("sqlite:/srv/jobs.db", "/srv/jobs.db"),
        ("sqlite:///jobs%20a.db?synchronous=NORMAL", "jobs a.db"),
        ("sqlite:///~/jobs.db", "{home}/jobs.db"),
        ("sqlite:~/jobs.db", "{home}/jobs.db"),
        ("sqlite:////~/jobs.db", "/~/jobs.db"),
    ],
)
def test_every_spelling_opens_the_file_that_it_names(
    url: str, path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert str(sqlite_path(url)) == path.format(home=tmp_path)


@pytest.mark.parametrize(
    "url", ["sqlite:///jobs.db", "sqlite:jobs.db", "sqlite://jobs.db", "sqlite:./jobs.db"]
)
def test_the_file_is_where_the_address_says(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert missing_file(url) == Path("jobs.db")
    app = Dueline(url)
    app.engine.catalog.names()
    app.close()
    assert [one.name for one in tmp_path.iterdir() if one.suffix == ".db"] == ["jobs.db"]
    assert missing_file(url) is None
    open_wakeups(url, app.store, clock=SystemClock())


@pytest.mark.parametrize("url", ["sqlite:///:memory:", "sqlite://:memory:", "sqlite::memory:"])
def test_a_file_in_memory_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=":memory:") as raised:
        _ = Dueline(url).store
    assert "memory://" in raised.value.hint


@pytest.mark.parametrize("url", ["sqlite:", "sqlite://", "sqlite:///", "sqlite:///data/"])
def test_an_address_without_a_file_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="not a valid SQLite URL") as raised:
        _ = Dueline(url).store
    assert "sqlite:///jobs.db" in raised.value.hint


def test_only_sqlite_has_a_missing_file() -> None:
    assert missing_file("memory://") is None
    assert missing_file("cassandra://host/keyspace") is None


@pytest.mark.parametrize("url", ["sqlite:///a#b.db", "sqlite:a.db#", "sqlite:///a.db?mode=0660#b"])
def test_no_part_of_the_name_of_a_file_is_ignored(url: str) -> None:
    with pytest.raises(ConfigError, match="not a valid SQLite URL") as raised:
        _ = Dueline(url).store
    assert "%23" in raised.value.hint
    assert str(sqlite_path("sqlite:///a%23b.db")) == "a#b.db"


@pytest.mark.parametrize("url", ["postgres:shop", "postgresql:/host/shop"])
def test_an_address_of_postgresql_has_two_slashes(url: str) -> None:
    with pytest.raises(ConfigError, match="not a valid PostgreSQL URL") as raised:
        address_of(url, {})
    assert "postgresql://user:password@host/database" in raised.value.hint
