"""What a command works with."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import cached_property

import typer

from dueline import Dueline
from dueline.api.config import find_config
from dueline.api.loading import load_app
from dueline.core.engine import Engine
from dueline.core.errors import ConfigError
from dueline.jobs.queue import Queues


class Format(StrEnum):
    """How results are written."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"


class Session:
    """The options that hold for every command, and what they lead to."""

    def __init__(self, store: str | None, app: str | None, form: Format) -> None:
        """Take an address, MODULE:ATTR or FILE.py:ATTR, and the form of results.

        None where a flag was not given.
        """
        self._store = store
        self._app = app
        self._imported: dict[str, Dueline] = {}
        self.form = form

    @property
    def store(self) -> str | None:
        """The store's address that the flag gave, if it did."""
        return self._store

    def application(self, place: str | None = None) -> Dueline:
        """Import the application: the flag's, or DUELINE_APP's, or that of dueline.toml.

        Raises: ConfigError: none is named, or it cannot be imported.
        """
        place = place or find_config(store=self._store, app=self._app).app
        if place is None:
            raise ConfigError(
                "No app is named.",
                hint="Give --app MODULE:ATTR, or set DUELINE_APP, or write dueline.toml.",
            )
        if place not in self._imported:
            app = load_app(place)
            if self._store is not None:
                app.use_store(self._store)
            self._imported[place] = app
        return self._imported[place]

    @cached_property
    def address(self) -> str:
        """The store's address: the flag's, the app's own, or what is set outside.

        Raises: ConfigError: there is none.
        """
        if self._store is not None:
            return self._store
        config = find_config(app=self._app)
        if config.app is not None:
            return self.application(config.app).url
        if config.store is None:
            raise ConfigError(
                "No store is named.",
                hint="Give --store sqlite:///jobs.db, or set DUELINE_STORE, or write dueline.toml.",
            )
        return config.store

    @contextmanager
    def queues(self) -> Iterator[Queues]:
        """Open the store for a while; what an app declares is left to the app."""
        app = Dueline(self.address)
        try:
            yield app.queues
        finally:
            app.close()

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """Open the store for a while, for commands that only read it and its settings."""
        with self.queues() as queues:
            yield queues.engine


def session_of(context: typer.Context) -> Session:
    """Get at the options of the whole command."""
    session = context.obj
    assert isinstance(session, Session)
    return session
