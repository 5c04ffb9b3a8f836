"""Features that a store uses, so that older processes refuse it.

A feature is named here when it changes what stored rows mean. The first process that uses one
writes its name into the store. Every process reads the names together with a queue's settings,
and refuses a store that names a feature it does not know (rules V1 and V2).
"""

from collections.abc import Iterable
from copy import copy
from typing import Final

from dueline.core.codec import encode
from dueline.core.errors import SchemaMismatch, StoreMoved, StoreUnavailable, Unknown
from dueline.core.ids import Ids
from dueline.core.pagination import records_in
from dueline.core.store import NO_VERSION, Put, Records
from dueline.core.version import VERSION

PARTITION: Final = "features"

BASE: Final = "history columns"
"""Every store names it from its first queue on: stores of development versions before 1.0 lack it.
"""

OF_NEW: Final = (BASE,)
"""Features that a store uses from its first queue on; others get them from `dueline migrate`."""

FUNCTIONS: Final = "durable functions"
"""Named before the first record of a durable function: older versions would end one that waits."""

DEPENDENCIES: Final = "jobs that wait for others"
"""Named before the first job that waits for another one: older versions would run it at once."""

NEEDS: Final = "needs of workers"
"""Named before the first job that needs something of a worker: older versions would read a limit.
"""

SECTIONS: Final = "sections that must not repeat"
"""Named before the first mark of a section: older versions would run a job again that died in one.
"""

ORDERS: Final = "order keys"
"""Named before the first job with an order key: older versions would run it at once."""

WEBHOOKS: Final = "webhooks"
"""Named before the first job with a webhook: older versions would end it and tell nobody."""

STREAM_SIZES: Final = "streams kept by size"
"""Named before a stream has such a setting: older versions would store its settings without it."""

KNOWN: Final = frozenset(
    {
        BASE,
        FUNCTIONS,
        DEPENDENCIES,
        NEEDS,
        SECTIONS,
        ORDERS,
        WEBHOOKS,
        STREAM_SIZES,
    }
)
"""Features that this version knows."""

MOVED: Final = "moved to "
"""Begins the name that says to which address the store has moved (rule X1)."""

FILLING: Final = "being filled from "
"""Begins the name that says that another store, or an export, is still copied into this one."""

FROZEN: Final = "frozen by an export"
"""Says that an export reads the store; the record expires if that process dies (rule X7)."""


class Features:
    """The features of one store; thread-safe.

    Attributes:
      moves: This process moves the store, so it uses it before and after that.
      moved_to: The address to which the store has moved, as last read; empty if it has not.
      is_closed: Nothing may be enqueued or claimed, as last read: it has moved, or is frozen.
    """

    def __init__(self, records: Records, *, ids: Ids) -> None:
        self._records = records
        self._ids = ids
        self._used: frozenset[str] = frozenset()
        self.moves = False
        self.moved_to = ""
        self.is_closed = False

    def inside(self, records: Records) -> "Features":
        """Return the same features as an open transaction sees them: it may be rolled back."""
        inside = copy(self)
        inside._records = records  # noqa: SLF001  (one of its own kind)
        return inside

    def check(self) -> None:
        """Read the names and check that this version knows all of them.

        Raises:
          SchemaMismatch: the store uses a feature that this version does not know.
          StoreUnavailable: another store is still copied into this one.
        """
        names = names_of(self._records)
        moved_to = _rest_of(names, MOVED)
        filled_from = _rest_of(names, FILLING)
        if unknown := sorted(
            name for name in names - KNOWN if not name.startswith((MOVED, FILLING, FROZEN))
        ):
            raise SchemaMismatch(
                f"The store uses features unknown to dueline {VERSION}: {', '.join(unknown)}.",
                hint="Upgrade this process to the version that wrote them.",
            )
        if filled_from and not self.moves:
            raise StoreUnavailable(
                f"The store is still being filled from {filled_from}.",
                hint="Try again: the store opens by itself, unless that command was interrupted.",
            )
        self._used = names
        self.moved_to = moved_to
        self.is_closed = bool(moved_to) or FROZEN in names

    def expect_here(self) -> None:
        """Raise StoreMoved or StoreUnavailable if the store is closed, as last read (rule X1)."""
        if not self.is_closed or self.moves:
            return
        if self.moved_to:
            raise StoreMoved.to(self.moved_to)
        raise StoreUnavailable(
            "The store is frozen while `dueline export` reads it.",
            hint="Try again: it goes on by itself.",
        )

    def has(self, name: str) -> bool:
        """Return whether the store used a feature when the names were last read."""
        return name in self._used

    def use(self, name: str) -> bool:
        """Write a feature's name into the store if it is missing.

        Args:
          name: one of KNOWN, or a name that begins with MOVED.

        Returns:
          Whether other processes must read the names again before rows of the feature are
          written, because the feature is new here and some of them may not know it.

        Raises:
          SchemaMismatch: as `check`.
          StoreUnavailable: the store did not answer; only the name may have been written.
        """
        assert name in KNOWN or name.startswith(MOVED), name
        if name in self._used:
            return False
        self.check()
        if name in self._used:
            return False
        put = Put(name, self._ids.token(), encode({"version": VERSION}), expect=NO_VERSION)
        try:
            is_new = self._records.commit(PARTITION, (put,))
        except Unknown as error:  # the next use reads again
            raise StoreUnavailable(f"The store did not confirm the feature {name}.") from error
        self._used |= {name}
        return is_new


def names_of(records: Records) -> frozenset[str]:
    """Return the names of the features that a store uses."""
    return frozenset(record.key for record in records_in(records, PARTITION))


def _rest_of(names: Iterable[str], start: str) -> str:
    return next((name.removeprefix(start) for name in sorted(names) if name.startswith(start)), "")
