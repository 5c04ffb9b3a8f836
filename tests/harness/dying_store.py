"""A store whose process ends at one of its calls."""

from collections.abc import Iterator
from typing import Any


class Dying:
    """Passes calls on to a store; the process dies before or after one of them."""

    def __init__(self, store: Any, calls: Iterator[int], dies_at: int) -> None:  # noqa: ANN401
        """Take the store, a counter that both stores share, and the fatal number."""
        self._store = store
        self._calls = calls
        self._dies_at = dies_at
        self.transactional = store.transactional
        self.scope = store.scope

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        """Count calls."""
        method = getattr(self._store, name)
        if not callable(method):
            return method

        def call(*args: object, **more: object) -> object:
            if 0 < self._dies_at <= next(self._calls):
                raise Died
            answer = method(*args, **more)
            if 0 < self._dies_at <= next(self._calls):
                raise Died
            return answer

        return call

    def all_records(self, **more: Any) -> Any:  # noqa: ANN401
        """List records."""
        return self._store.all_records(**more)

    def lanes_with_rows(self, **more: Any) -> Any:  # noqa: ANN401
        """List lanes."""
        return self._store.lanes_with_rows(**more)


class Died(BaseException):
    """The process ended here."""
