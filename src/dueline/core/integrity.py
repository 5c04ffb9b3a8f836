"""Whether a store's indexes agree with its tables.

Beside the store protocol, optional: a damaged index hides rows that are there.
"""

from typing import Protocol, runtime_checkable


@runtime_checkable
class ComparesIndexes(Protocol):
    """A store that can compare its indexes with its tables."""

    def compare_indexes(self, *, timeout_us: int) -> list[str] | None:
        """Compare all indexes with their tables; writers go on meanwhile.

        Args:
          timeout_us: after how many microseconds to give up.

        Returns:
          What does not agree, as texts, the first of it; None where there was too little time.
        """
        ...
