"""Claims that reach the disk later.

Beside the waist, optional: a store whose claimers all die with its machine need not flush claims.
"""

from typing import Protocol, runtime_checkable

from dueline.core.store import Store


@runtime_checkable
class FlushesLater(Protocol):
    """A store in which a loss of power may take back claims, and nothing else (rule P8).

    What was claimed last then waits again, as it did before; a claim stays once anything later
    was stored, or `flush` has returned. Other processes of the machine see it at once.
    """

    def flush(self) -> None:
        """Let no loss of power take back what was claimed."""
        ...


def flush_claims(store: Store) -> None:
    """See to it that claims last, before anything outside is told of them."""
    if isinstance(store, FlushesLater):
        store.flush()
