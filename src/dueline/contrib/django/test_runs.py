"""Stores of test runs: they begin empty, and end before Django drops its databases.

Django's runner sends no signal, so the steps of its test databases are wrapped. They are public:
`create_test_db` and `destroy_test_db` of `connection.creation`.
"""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from django.db import connections

from dueline.contrib.django.application import DjangoApplication

Applications = Callable[[], Iterable[DjangoApplication]]

EMPTY = """
DO $$ DECLARE names text; BEGIN
    SELECT string_agg(format('%I.%I', schemaname, tablename), ', ') INTO names FROM pg_tables
    WHERE schemaname = 'dueline' AND tablename <> 'about';
    IF names IS NOT NULL THEN EXECUTE 'TRUNCATE ' || names; END IF;
END $$
"""


def follow_test_runs(applications: Applications) -> None:
    """Open and close stores with the test databases of this process.

    Args:
        applications: Returns the applications of the backends in TASKS.
    """
    for connection in connections.all():
        alias, creation = connection.alias, connection.creation
        for name, is_tested in (
            ("create_test_db", True),
            ("setup_worker_connection", True),
            ("destroy_test_db", False),
        ):
            method = getattr(creation, name)
            setattr(creation, name, _after_reset(method, applications, alias, is_tested=is_tested))


def _after_reset(
    method: Callable[..., Any], applications: Applications, alias: str, *, is_tested: bool
) -> Callable[..., Any]:
    @wraps(method)
    def reset_first(*args: Any, **options: Any) -> Any:  # noqa: ANN401  (as Django calls it)
        for app in applications():
            if app.database in (None, alias):
                app.reset(is_tested=is_tested)
        return method(*args, **options)

    return reset_first


def empty(app: DjangoApplication) -> None:
    """Delete the jobs of a test run, as `TransactionTestCase` deletes the rows of models."""
    app.reset(is_tested=True)
    if app.database is not None:
        with connections[app.database].cursor() as cursor:
            cursor.execute(EMPTY)
