"""Where handlers put the chunks that they emit."""

from collections import deque
from collections.abc import Callable

from dueline.tasks.chunks import Emitted


class ChunkInbox:
    """Takes chunks from handlers, in any thread, until they are taken from it.

    Attributes:
      notify: Called after each chunk.
    """

    def __init__(self) -> None:
        self._chunks: deque[Emitted] = deque()
        self.notify: Callable[[], object] = _nothing

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def emit(self, emitted: Emitted) -> None:
        """Take a chunk."""
        self._chunks.append(emitted)
        self.notify()

    def take(self) -> list[Emitted]:
        """Return the chunks since the last call; one thread calls this at a time."""
        return [self._chunks.popleft() for _ in range(len(self._chunks))]


def _nothing() -> None:
    """Do nothing."""
