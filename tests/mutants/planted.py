"""A pytest plugin that changes a store's statements: `-p tests.mutants.planted`.

DUELINE_PLANTED holds a list in JSON: a text of statements, and what stands in its place. The run
ends with exit code USAGE_ERROR where no statement held the text, since then nothing was changed.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import apsw
import pytest
from cassandra.cluster import Session

VARIABLE = "DUELINE_PLANTED"

_old, _new = json.loads(os.environ.get(VARIABLE, '["", ""]'))
_changed: set[str] = set()


def changed(statement: str) -> str:
    """Return the statement to run in the place of one; note if it is another."""
    if not _old or _old not in statement:
        return statement
    _changed.add(statement)
    return statement.replace(_old, _new)


class PlantedConnection(apsw.Connection):
    """A connection to SQLite that runs the changed statements."""

    def execute(self, statements: str, *bound: Any, **terms: Any) -> apsw.Cursor:  # noqa: ANN401
        """Run the changed statement."""
        return super().execute(changed(statements), *bound, **terms)

    def executemany(self, statements: str, *bound: Any, **terms: Any) -> apsw.Cursor:  # noqa: ANN401
        """Run the changed statement for each row."""
        return super().executemany(changed(statements), *bound, **terms)


def pytest_configure() -> None:
    """Plant the change."""
    apsw.Connection = PlantedConnection  # type: ignore[misc]  # for all who open one from now on
    prepare = Session.prepare

    def prepare_changed(session: Session, query: str, *rest: Any, **terms: Any) -> Any:  # noqa: ANN401
        return prepare(session, changed(query), *rest, **terms)

    Session.prepare = prepare_changed


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell a change that was not planted from one that no law noticed."""
    if not _changed:
        session.exitstatus = pytest.ExitCode.USAGE_ERROR


def environment(old: str, new: str, variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of a run with changed statements, in which no test is left out."""
    turns = ("_PART", "_TURN")
    whole = {name: value for name, value in variables.items() if not name.endswith(turns)}
    return whole | {VARIABLE: json.dumps([old, new])}


def command(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of Python for such a run, which ends at the first failure."""
    return ["-m", "pytest", "-q", "-x", "-p", "tests.mutants.planted", "-p", "no:cacheprovider",
            "--no-header", "--tb=no", *arguments]  # fmt: skip
