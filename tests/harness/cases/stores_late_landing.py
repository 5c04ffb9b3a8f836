"""Requests that land late, on the memory store without transactions (rule U5)."""

from collections.abc import Callable, Iterator

from dueline.core.errors import StoreUnavailable
from tests.harness.clocks import HandClock
from tests.harness.cluster import Cluster
from tests.harness.late_answers import ON_TIME, LateClient


class LateStore(LateClient):
    """A store that gives up its next conditional write on request."""

    def __init__(self) -> None:
        """Start empty, with an answer to each request."""
        self.armed: list[int] = []
        super().__init__(HandClock(), cluster=Cluster(), turns=self._turns())

    def _turns(self) -> Iterator[int]:
        while True:
            yield self.armed.pop() if self.armed else ON_TIME

    def silence(self) -> Callable[[], None]:
        """Answer no reading of rows, until what is returned is called."""

        def fail(*_: object) -> None:
            raise StoreUnavailable

        some = self._node.some
        self._node.some = fail  # type: ignore[method-assign, assignment]

        def speak() -> None:
            self._node.some = some  # type: ignore[method-assign]

        return speak
