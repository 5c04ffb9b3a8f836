"""Application, store and output format of a command."""

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Final, Literal

import typer

from dueline import Dueline
from dueline.api.config import find_config
from dueline.api.connect import check_exists
from dueline.api.loading import apps_here, found_here, load_app
from dueline.core.actor import Actor, actor_of
from dueline.core.engine import Engine
from dueline.core.errors import ConfigError
from dueline.core.system import user_name
from dueline.jobs.queue import Queues

if TYPE_CHECKING:
    from dueline.admin.operations import Recording


Format = Literal["table", "json", "ndjson", "csv"]
"""Output formats."""


class Session:
    """The global options of a command line.

    store: URL of the store. app: MODULE:ATTR or FILE.py:ATTR. Both None if not given.
    form: output format. change: the command and its parameters, if it changes what operators
    change; it is recorded while the store is open.
    """

    def __init__(self, store: str | None, app: str | None, form: Format) -> None:
        self._store = store
        self._app = app
        self._imported: dict[str, Dueline] = {}
        self.change: tuple[str, str] | None = None
        self._recording: Recording | None = None
        self.form = form

    @property
    def store(self) -> str | None:
        """The store's URL from the command line, if given."""
        return self._store

    def application(self, place: str | None = None, *, otherwise: str = "") -> Dueline:
        """Import the application from --app, DUELINE_APP or dueline.toml.

        Args: otherwise: what else the command can do, for the hint if none is named.

        Raises: ConfigError: no application is named, or it cannot be imported.
        """
        folder = None
        if place is None:
            config = find_config(store=self._store, app=self._app)
            place, folder = config.app, config.folder
        if place is None:
            raise ConfigError(
                "No application is named.",
                hint="Pass --app MODULE:ATTR, set DUELINE_APP, or use dueline.toml."
                + found_here(apps_here())
                + otherwise,
            )
        if place not in self._imported:
            app = load_app(place, folder)
            if self._store is not None:
                app.use_store(self._store)
            self._imported[place] = app
        return self._imported[place]

    @cached_property
    def address(self) -> str:
        """The store's URL from --store, the application, DUELINE_STORE or dueline.toml.

        Raises: ConfigError: no store is named.
        """
        if self._store is not None:
            return self._store
        config = find_config(app=self._app)
        if config.app is not None:
            return self.application().url
        if config.store is None:
            raise ConfigError(
                "No store is named.",
                hint="Pass --store sqlite:///jobs.db, set DUELINE_STORE, or use dueline.toml.",
            )
        return config.store

    def place(self, place: str | None) -> str:
        """Return the application of a command, as it is named; empty if none is."""
        return place or find_config(store=self._store, app=self._app).app or ""

    def known_address(self, error: BaseException) -> str | None:
        """Return the store's URL, as far as it is known where an import failed."""
        if address := self._store or find_config(store=self._store, app=self._app).store:
            return address
        made = next(chain(self._imported.values(), _made_before(error)), None)
        return None if made is None else made.url

    @property
    def has_application(self) -> bool:
        """Whether an application is named, by --app, DUELINE_APP or dueline.toml."""
        return find_config(store=self._store, app=self._app).app is not None

    @property
    def source_folder(self) -> Path:
        """The folder of the application's files: that of dueline.toml, or the current one."""
        return find_config(store=self._store, app=self._app).folder or Path()

    @contextmanager
    def queues(self, *, creates: bool = False) -> Iterator[Queues]:
        """Open the store while the block runs, without the declarations of an application.

        Args: creates: whether an SQLite file that does not exist is created.

        Raises: ConfigError: there is no such file, or no store is named.
        """
        app = Dueline(self.address)
        try:
            _ = app.store  # checks the address
            if not creates:
                check_exists(self.address)
            if self.change is None:
                yield app.queues.by(operator())
                return
            from dueline.admin.operations import recorded  # noqa: PLC0415  (slow to load)

            with recorded(app.engine, operator(), *self.change) as self._recording:
                yield app.queues.by(operator())
        finally:
            app.close()

    @contextmanager
    def engine(self, *, creates: bool = False) -> Iterator[Engine]:
        """Open the store while the block runs, for commands that need only the engine."""
        with self.queues(creates=creates) as queues:
            yield queues.engine

    def note_result(self, result: str) -> None:
        """Note how a change ended that is recorded; empty: nothing of it is recorded."""
        if self._recording is not None:
            self._recording.result = result


def _made_before(error: BaseException | None) -> Iterator[Dueline]:
    """Yield the applications that modules had made when their import failed."""
    while error is not None:
        for frame, _ in walk_tb(error.__traceback__):
            yield from (made for made in frame.f_globals.values() if isinstance(made, Dueline))
        error = error.__cause__


OF_THIS_PROCESS: Final = (
    "memory:// keeps jobs in this process: no other process sees them, and they end with it."
)


def is_of_this_process(url: str) -> bool:
    """Return whether a store ends with its process."""
    return url.startswith("memory:")


CHANGES: Final = frozenset(
    {
        *("jobs cancel", "jobs retry", "jobs reschedule", "jobs change", "jobs settle"),
        *("jobs pause", "jobs resume"),
        *("dead retry", "dead purge"),
        *("queues pause", "queues resume", "queues quota", "queues purge", "queues set"),
        *("limits set", "limits remove", "shards release", "shards rebalance"),
        *("streams reshard", "streams seek"),
        *("schedules add", "schedules pause", "schedules resume", "schedules trigger"),
        *("schedules remove", "flows cancel", "flows retry", "flows signal", "flows reset"),
        *("flows fork", "batches retry", "batches cancel"),
    }
)
"""Commands that are recorded with the changes that operators make on the dashboard.

Others record what they do themselves, under the name that the dashboard uses.
"""


def _change_of(context: typer.Context) -> tuple[str, str] | None:
    """Return the name of a command and its parameters, if it is to be recorded."""
    name = context.command_path.partition(" ")[2]
    given = {word: value for word, value in context.params.items() if value not in (None, False)}
    if name not in CHANGES or given.pop("dry_run", False):
        return None
    given.pop("yes", None)
    return name, " ".join(_words(given))


def _words(given: Mapping[str, object]) -> Iterator[str]:
    """Yield parameters as words: names of what is changed, then options."""
    for word, value in given.items():
        values = value if isinstance(value, list | tuple) else [value]
        yield from (f"{word}={item}" for item in values)


def operator() -> Actor:
    """Return who runs this command, for the record of changes."""
    return actor_of(f"{user_name()}@{socket.gethostname()}", "command line")


def session_of(context: typer.Context) -> Session:
    """Return the global options of the command line."""
    session = context.obj
    assert isinstance(session, Session)
    session.change = _change_of(context)
    return session
