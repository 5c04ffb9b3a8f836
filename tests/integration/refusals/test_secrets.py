"""Addresses that are wrong, and passwords that are never shown."""

from pathlib import Path

import pytest

from dueline import Dueline
from dueline.api.connect import mask, open_store
from dueline.core.errors import ConfigError
from dueline.stores.cassandra.url import place_of

SECRET = "pw"  # noqa: S105


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("cassandra://u:pw@host/ks", "cassandra://u:***@host/ks"),
        ("cassandra://u:a/pw@host/ks", "cassandra://u:***@host/ks"),
        ("cassandra://u:a#pw@host/ks", "cassandra://u:***@host/ks"),
        ("cassandra://u:a?pw@host/ks", "cassandra://u:***@host/ks"),
        ("cassandra://u:a@pw@host/ks", "cassandra://u:***@host/ks"),
        ("cassandra://u:pw[@host/ks", "cassandra://u:***@host/ks"),
        ("cassandra:/u:pw@host/ks", "cassandra:***@host/ks"),
        ("u:pw@host/ks", "u:***@host/ks"),
        (":pw@host", ":***@host"),
        ("cassandra://u@host/ks", "cassandra://u@host/ks"),
        ("cassandra://host/ks", "cassandra://host/ks"),
        ("sqlite:///a:b@c.db", "sqlite:///a:b@c.db"),
    ],
)
def test_a_password_is_hidden_in_whatever_it_stands(url: str, shown: str) -> None:
    assert mask(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "cassandra://u:pw[@host/ks",
        "cassandra://u:pw]@host/ks",
        "cassandra://u:a/pw@host/ks",
        "cassandra://u:a#pw@host/ks",
        "cassandra://u:a?pw@host/ks",
        "cassandra://u:pw?b@host/ks",
        "cassandra://u:a@b/pw@host",
        "cassandra:/u:pw@host/ks",
        "mysql://u:pw@host/ks",
        "mysql://u:a/pw@host/ks",
        "[",
        "sqlite:///[]/jobs.db",
    ],
)
def test_a_wrong_address_is_refused_without_its_password(url: str) -> None:
    assert SECRET not in repr(Dueline(url))
    if url == "sqlite:///[]/jobs.db":  # brackets in a path are the path's
        open_store(url).close()
        return
    with pytest.raises(ConfigError) as refused:
        open_store(url)
    assert SECRET not in f"{refused.value.message} {refused.value.hint}"
    assert refused.value.hint


def test_a_password_comes_from_a_file_or_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "password"
    file.write_text("s:e/c\n", encoding="utf-8")
    monkeypatch.setenv("QUEUE_PASSWORD", "v@r")
    assert place_of("cassandra://u@h/ks", {"password_file": str(file)}).password == "s:e/c"  # noqa: S105
    assert place_of("cassandra://u@h/ks", {"password_env": "QUEUE_PASSWORD"}).password == "v@r"  # noqa: S105


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("cassandra://u@h/ks", {"password_file": "/nowhere/password"}),
        ("cassandra://u@h/ks", {"password_env": "NO_SUCH_VARIABLE"}),
        ("cassandra://u:pw@h/ks", {"password_env": "HOME"}),
    ],
)
def test_a_password_that_cannot_be_had_is_refused(url: str, options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="password") as refused:
        place_of(url, options)
    assert SECRET not in refused.value.message.replace("password", "")
