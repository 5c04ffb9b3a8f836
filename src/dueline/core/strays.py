"""Answers of a server that belonged to no request.

Beside the store protocol, optional: a store whose server mixes answers up counts those it drops.
"""

from typing import Protocol, runtime_checkable

from dueline.core.store import Store


@runtime_checkable
class CountsStrayAnswers(Protocol):
    """A store that counts the answers it dropped."""

    def stray_answers(self) -> int:
        """Return the number of answers that this process dropped."""
        ...


def stray_answers_of(store: Store) -> int:
    """Return the number of answers that this process dropped; 0 where a store counts none."""
    return store.stray_answers() if isinstance(store, CountsStrayAnswers) else 0
