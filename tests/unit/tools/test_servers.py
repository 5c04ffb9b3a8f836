"""An absent server, skipped or failed."""

import pytest

from tests.harness.servers import absent


def test_an_absent_server_is_a_skip_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DUELINE_REQUIRE", raising=False)
    with pytest.raises(pytest.skip.Exception, match="cassandra is absent: nobody listens"):
        absent("cassandra", "nobody listens")


def test_an_absent_server_is_a_failure_where_it_is_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DUELINE_REQUIRE", "redis, cassandra")
    with pytest.raises(pytest.fail.Exception, match="cassandra is required"):
        absent("cassandra", "nobody listens")
