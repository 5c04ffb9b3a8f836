"""Tables of another schema version: refused, and left as they are (R15)."""

import pytest

from dueline import Dueline
from dueline.core.errors import SchemaMismatch
from tests.harness.postgres import expect_server, statement
from tests.harness.servers import migrate

expect_server()

pytestmark = pytest.mark.postgres


def test_a_migration_that_is_repeated_creates_nothing(url: str) -> None:
    migrated = migrate(url)
    assert (list(migrated.made), migrated.version) == ([], "2")


@pytest.mark.parametrize(
    ("version", "words"),
    [("1", r"schema 1: a development version before 1\.0 made it"), ("3", "this dueline knows 2")],
)
def test_tables_of_another_version_are_refused(url: str, version: str, words: str) -> None:
    schema = url.partition("schema=")[2]
    change = "UPDATE {}.about SET value = %s WHERE name = 'schema'"
    statement(url, change.format(schema), (version,))
    app = Dueline(url)
    with pytest.raises(SchemaMismatch, match=words):
        app.stream("clicks", shards=1).append(1)
    app.close()
    with pytest.raises(SchemaMismatch, match=words):
        migrate(url)
    read = "SELECT value FROM {}.about WHERE name = 'schema'"
    assert statement(url, read.format(schema)) == [(version,)]
