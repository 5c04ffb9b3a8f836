"""Keyspaces as users open them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dueline.api.application import Dueline
from dueline.api.connect import open_store
from dueline.core.errors import DuelineError

if TYPE_CHECKING:  # the driver may be absent
    from dueline.stores.cassandra.session import CassandraSession


@contextmanager
def session_on(url: str) -> Iterator["CassandraSession"]:
    """Open the session of a store."""
    from dueline.stores.cassandra.store import CassandraStore  # noqa: PLC0415  (needs the driver)

    store = open_store(url)
    assert isinstance(store, CassandraStore)
    try:
        yield store._session
    finally:
        store.close()


def refusal(url: str) -> DuelineError | None:
    """Tell how a store is refused; None where it is not."""
    store = open_store(url)
    try:
        store.describe()
    except DuelineError as error:
        return error
    finally:
        store.close()
    return None


def enqueue_one(url: str) -> DuelineError | None:
    """Tell how a job is refused; None where it is not."""
    app = Dueline(url)
    try:
        app.task(name="work")(print).enqueue()
    except DuelineError as error:
        return error
    finally:
        app.close()
    return None
