"""How the laws get their stores."""

from collections.abc import Callable
from typing import Protocol

from dueline.api.connect import open_store
from dueline.core.clock import Clock, SystemClock
from dueline.core.store import Store


class StoreFactory(Protocol):
    """Makes empty stores, and opens the data of one again."""

    def fresh(self) -> str:
        """Make room for an empty store; return the URL by which any process opens it."""
        ...

    def open(self, url: str, *, clock: Clock | None = None) -> Store:
        """Open a store on the data behind a URL that `fresh` returned.

        Args: clock: stands in for the machine's; a server's store goes by the server's.
        """
        ...


class UrlFactory:
    """Makes stores of a kind that `dueline.api.connect` knows by its URLs."""

    def __init__(self, url_of: Callable[[int], str]) -> None:
        self._url_of = url_of
        self._made = 0

    def fresh(self) -> str:
        """Return the URL of the next empty store."""
        url = self._url_of(self._made)
        self._made += 1
        return url

    def open(self, url: str, *, clock: Clock | None = None) -> Store:
        """Open a store by its URL, as any other process would."""
        return open_store(url, clock=clock)


class KeepingFactory:
    """Makes stores of a kind that holds its data itself: opened again, it is the same one."""

    def __init__(self, make: Callable[[Clock], Store]) -> None:
        self._make = make
        self._stores: dict[str, Store | None] = {}

    def fresh(self) -> str:
        """Return the name under which `open` will make and keep a store."""
        url = f"kept://{len(self._stores)}"
        self._stores[url] = None
        return url

    def open(self, url: str, *, clock: Clock | None = None) -> Store:
        """Give the store of that name; made at the first time, with that time's clock."""
        store = self._stores[url] or self._make(clock or SystemClock())
        self._stores[url] = store
        return store
