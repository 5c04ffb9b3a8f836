"""Warnings of servers are counted, and logged once a minute."""

import logging

import pytest

from tests.harness.cassandra_node import expect_node, keyspaces_on_a_node

expect_node()
pytestmark = pytest.mark.cassandra

from dueline.stores.cassandra.server_warnings import EVERY_S, ServerWarnings  # noqa: E402

CROSSED = (
    "Read 0 live rows and 1201 tombstone cells for query SELECT * FROM ks.jobs WHERE queue = "
    "'{}' (see tombstone_warn_threshold)"
)
LARGE = "Batch for [ks.jobs] is of size {}KiB, exceeding specified threshold of 5KiB by {}"


def test_each_kind_is_logged_once_a_minute_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 100.0
    warnings = ServerWarnings(lambda: now_s)
    with caplog.at_level(logging.INFO, "dueline.cassandra"):
        for number in range(50):
            warnings.note(CROSSED.format(number))
            warnings.note(LARGE.format(number, number))
        now_s += EVERY_S
        warnings.note(CROSSED.format(51))
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in lines] == ["INFO", "WARNING", "INFO"]
    assert lines[0][1].startswith("1 reads crossed more deleted rows")
    assert "dueline doctor" in lines[0][1]
    assert lines[1][1].startswith("A server warns: Batch for [ks.jobs] is of size NKiB")
    assert lines[2][1].startswith("50 reads crossed")
    assert "SELECT" not in str(lines)


def test_statements_of_warnings_stay_out_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    # A real server's warning: of an aggregation without a partition key.
    with keyspaces_on_a_node(1) as keyspaces, caplog.at_level(logging.DEBUG):
        store = keyspaces.open(keyspaces.fresh())
        for _ in range(3):
            store._session.ask("SELECT count(*) FROM system.local")  # type: ignore[attr-defined]
        store.close()
    warned = [
        record
        for record in caplog.records
        if "Aggregation query used without" in record.getMessage()
    ]
    assert [record.name for record in warned] == ["dueline.cassandra"]
