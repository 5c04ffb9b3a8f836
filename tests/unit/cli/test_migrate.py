"""`dueline migrate`."""

import json

import pytest

from dueline.core.errors import SchemaMismatch
from dueline.core.store import Migration
from dueline.stores.memory.store import MemoryStore
from tests.harness.shell import Shell


class Served(MemoryStore):
    """A store that is set up on request."""

    def migrate(self) -> Migration:
        """Be as a server that lacks two tables."""
        return Migration(["table jobs", "table lanes"], "3")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> type[Served]:
    """Put such a store behind memory://."""
    monkeypatch.setattr("dueline.stores.memory.store.MemoryStore", Served)
    return Served


def test_a_file_has_nothing_to_be_made(shell: Shell) -> None:
    answer = shell.app("migrate")
    assert (answer.code, answer.out) == (0, "schema  2\n")
    assert answer.err == "The schema is up to date.\n"
    assert shell.app("migrate", "-o", "json").data == {"schema": "2", "made": []}


@pytest.mark.usefixtures("served")
def test_what_was_made_is_told(shell: Shell) -> None:
    answer = shell("--store", "memory://", "migrate")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "schema  3\nmade    table jobs, table lanes\n"
    answer = shell("--store", "memory://", "-o", "json", "migrate")
    assert json.loads(answer.out)["meta"]["command"] == "migrate"
    assert answer.data == {"schema": "3", "made": ["table jobs", "table lanes"]}


def test_a_store_of_another_version_exits_3(
    shell: Shell, served: type[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Served) -> Migration:
        raise SchemaMismatch("It has schema version 9.")

    monkeypatch.setattr(served, "migrate", refuse)
    answer = shell("--store", "memory://", "migrate")
    assert (answer.code, answer.out) == (3, "")
    assert answer.why == "It has schema version 9."
