"""What an application connects to: opened at the first use, in each process."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from dueline.api.config import find_config
from dueline.api.connect import mask, open_queues, open_store
from dueline.core.clock import Clock, SystemClock
from dueline.core.engine import Engine
from dueline.core.errors import ConfigError
from dueline.core.store import Store
from dueline.jobs.queue import Queues
from dueline.tasks.handler import Handler
from dueline.tasks.hooks import Hooks


class Connection:
    """An application's store and engine, tasks and hooks."""

    def __init__(self, url: str | None = None, *, clock: Clock | None = None) -> None:
        """Take the store's address; None for DUELINE_STORE or dueline.toml. Opens nothing."""
        if not isinstance(url, str | None):
            raise ConfigError(
                f"{url!r:.80} is no store's address.", hint='Write "sqlite:///jobs.db".'
            )
        self._url = url
        self._clock = clock or SystemClock()
        self._tasks: dict[str, Handler] = {}
        self.hooks = Hooks()

    def __repr__(self) -> str:
        return f"<Dueline {mask(self._url) if self._url else 'without an address'}>"

    @cached_property
    def url(self) -> str:
        """The store's address.

        Raises: ConfigError: none was given, here or outside.
        """
        url = self._url or find_config().store
        if url is None:
            hint = 'Write Dueline("sqlite:///jobs.db"), or set DUELINE_STORE.'
            raise ConfigError("No store is given.", hint=hint)
        return url

    @property
    def clock(self) -> Clock:
        """The machine's clock."""
        return self._clock

    @cached_property
    def store(self) -> Store:
        """The store; opened at its first call."""
        return open_store(self.url, clock=self._clock)

    @cached_property
    def queues(self) -> Queues:
        """The engine below; what was declared with `queue` is stored at its first use."""
        queues = open_queues(self.url, self.store, clock=self._clock)
        self.declare(queues)
        return queues

    def declare(self, queues: Queues) -> None:
        """Store what was declared before the first use; nothing here."""

    @property
    def engine(self) -> Engine:
        """The engine below the queues; connects at the first use."""
        return self.queues.engine

    @property
    def is_open(self) -> bool:
        """Tell whether the engine was used before."""
        return "queues" in self.__dict__

    def use_store(self, url: str) -> None:
        """Use another store than the one that was given; before the first use."""
        if "store" in self.__dict__:
            raise ConfigError(
                "The store is in use already.", hint="Choose it before the first call."
            )
        self._url = url

    @contextmanager
    def switched(self, url: str, *, clock: Clock) -> Iterator[None]:
        """Use another store and clock as long as the block lasts, as tests do."""
        own, opened = (self._url, self._clock), self._forget()
        self._url, self._clock = url, clock
        try:
            yield
        finally:
            self.close()
            self._forget()
            self._url, self._clock = own
            self.__dict__.update(opened)

    def _forget(self) -> dict[str, Any]:
        """Let go of what was made at the first use."""
        names = [name for name in ("url", "store", "queues") if name in self.__dict__]
        return {name: self.__dict__.pop(name) for name in names}

    @property
    def tasks(self) -> Mapping[str, Handler]:
        """The registered functions, by name."""
        return self._tasks

    def close(self) -> None:
        """Close the store, if it was opened."""
        if "store" in self.__dict__:
            self.store.close()
