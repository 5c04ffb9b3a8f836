"""What a command works with."""

from dataclasses import dataclass
from enum import StrEnum

import typer

from dueline import Dueline
from dueline.app import as_app
from dueline.config import find_config, load_object
from dueline.errors import ConfigError
from dueline.queue import Queues


class Format(StrEnum):
    """How results are written."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"


@dataclass(frozen=True, slots=True)
class Session:
    """The options that hold for every command.

    store: an address; app: MODULE:ATTR or FILE.py:ATTR; None where the flag was not given.
    """

    store: str | None
    app: str | None
    output: Format

    def application(self, place: str | None = None) -> Dueline:
        """Import the application: the flag's, or DUELINE_APP's, or that of dueline.toml.

        Raises: ConfigError: none is named, or it cannot be imported.
        """
        place = place or find_config(store=self.store, app=self.app).app
        if place is None:
            raise ConfigError(
                "No app is named.",
                hint="Give --app MODULE:ATTR, or set DUELINE_APP, or write dueline.toml.",
            )
        app = as_app(load_object(place), place)
        if self.store is not None:
            app.use_store(self.store)
        return app

    def address(self) -> str:
        """Find the store's address: the flag's, the app's own, or what is set outside.

        Raises: ConfigError: there is none.
        """
        config = find_config(store=self.store, app=self.app)
        if self.store is None and config.app is not None:
            return self.application().url
        if config.store is None:
            raise ConfigError(
                "No store is named.",
                hint="Give --store sqlite:///jobs.db, or set DUELINE_STORE, or write dueline.toml.",
            )
        return config.store

    def queues(self) -> Queues:
        """Open the store; what an app declares is left to the app."""
        return Dueline(self.address()).queues


def session_of(context: typer.Context) -> Session:
    """Get at the options of the whole command."""
    session = context.obj
    assert isinstance(session, Session)
    return session
