"""Memory that a worker and one of its child processes share."""

import os
import tempfile
from collections.abc import Callable
from mmap import mmap

CELL_BYTES = 256
_WORD = 8
_WORDS = CELL_BYTES // _WORD

ENDING_BYTES_MAX = CELL_BYTES - _WORD
"""Maximum size of an ending in a cell; a larger one is sent through the pipe first."""


class Board:
    """A cell for each job that a child was given; it outlasts the child.

    A cell has one word of state: 0 before the handler is called, then the time of the call by the
    machine's monotonic clock, and a negative number once the ending stands behind it. A word is
    written at once, so that whenever the child dies the worker knows what it ran.

    Args:
        descriptor: The file of the memory, from `create_memory`.
    """

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap(descriptor, 0)
        os.close(descriptor)
        self._words = memoryview(self._memory).cast("q")

    def cells(self) -> range:
        """Return the numbers of the cells."""
        return range(0, len(self._words), _WORDS)

    def start(self, cell: int, monotonic_us: int) -> None:
        """Note that a handler is about to be called; 0: it is not called after all."""
        self._words[cell] = monotonic_us

    def end(self, cell: int, ending: bytes) -> None:
        """Note how a job ended; empty: that was sent through the pipe."""
        at = (cell + 1) * _WORD
        self._memory[at : at + len(ending)] = ending
        self._words[cell] = ~len(ending)

    def started_us(self, cell: int) -> int:
        """Return when the handler was called; 0 before that, negative when it has ended."""
        return self._words[cell]

    def ending(self, cell: int) -> bytes | None:
        """Return how the job ended, empty if that was sent; None if it has not ended."""
        state = self._words[cell]
        at = (cell + 1) * _WORD
        return None if state >= 0 else self._memory[at : at + ~state]

    def close(self) -> None:
        """Release the memory."""
        self._words.release()
        self._memory.close()


def create_memory(cells: int) -> int:
    """Create the memory of a board; return its file, which has no name."""
    make: Callable[[str], int] | None = getattr(os, "memfd_create", None)  # on Linux
    if make is not None:
        descriptor = make("dueline")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.truncate(descriptor, cells * CELL_BYTES)
    return descriptor
