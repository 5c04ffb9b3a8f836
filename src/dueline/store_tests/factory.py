"""Factories that open stores for the laws."""

from collections.abc import Callable
from typing import Protocol

from dueline.api.connect import open_store
from dueline.core.clock import Clock, SystemClock
from dueline.core.store import Store


class StoreFactory(Protocol):
    """Opens empty stores, and opens the data of a store again."""

    def fresh(self) -> str:
        """Return the URL of a new empty store, by which any process opens it."""
        ...

    def open(self, url: str, *, clock: Clock | None = None) -> Store:
        """Open a store by a URL that `fresh` returned.

        Args:
          url: The URL.
          clock: Replaces the machine's clock; a server's store uses the server's.
        """
        ...


class UrlFactory:
    """Opens stores by URLs that `dueline.api.connect` supports."""

    def __init__(self, url_of: Callable[[int], str]) -> None:
        self._url_of = url_of
        self._made = 0

    def fresh(self) -> str:
        """Return the URL of the next empty store."""
        url = self._url_of(self._made)
        self._made += 1
        return url

    def open(self, url: str, *, clock: Clock | None = None) -> Store:
        """Open a store by its URL."""
        return open_store(url, clock=clock)


class KeepingFactory:
    """Opens stores whose objects hold the data: opened again, a store is the same object."""

    def __init__(self, make: Callable[[Clock], Store]) -> None:
        self._make = make
        self._stores: dict[str, Store | None] = {}

    def fresh(self) -> str:
        """Return a name for a new store."""
        url = f"kept://{len(self._stores)}"
        self._stores[url] = None
        return url

    def open(self, url: str, *, clock: Clock | None = None) -> Store:
        """Return the store of that name; the first call creates it, with its clock."""
        store = self._stores[url] or self._make(clock or SystemClock())
        self._stores[url] = store
        return store
