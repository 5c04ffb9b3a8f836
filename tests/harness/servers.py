"""What to do where a server is absent, and the tables of stores on one that is there."""

import os
from typing import NoReturn

import pytest

from dueline.api.connect import open_store
from dueline.core.store import Migratable, Migration


def is_required(name: str) -> bool:
    """Tell whether DUELINE_REQUIRE, a list of names with commas between, names this server."""
    return name in os.environ.get("DUELINE_REQUIRE", "").replace(",", " ").split()


def absent(name: str, reason: str) -> NoReturn:
    """Skip the running test, by the server's name; fail where the server is required.

    Args: name: the store's marker, such as `cassandra`. reason: why it cannot be used here.
    """
    if is_required(name):
        pytest.fail(f"{name} is required by DUELINE_REQUIRE, and absent: {reason}", pytrace=False)
    pytest.skip(f"{name} is absent: {reason}")


def migrate(url: str) -> Migration:
    """Make or migrate the tables of a store; return what was made."""
    store = open_store(url)
    assert isinstance(store, Migratable)
    try:
        return store.migrate()
    finally:
        store.close()
