"""Leases, and leader election with them.

A lease is for speed, its epoch for safety (rule L1): each grant increments the epoch, and writes
under a lease are refused once a later epoch has written. The record never expires, so that no epoch
is granted twice. If two holders both believe that they hold a lease, that costs work, not
correctness.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from dueline.core.clock import SECOND_US, Clock, StoreTime
from dueline.core.codec import decode, encode
from dueline.core.errors import Unknown
from dueline.core.ids import Ids
from dueline.core.pagination import record_at, records_in
from dueline.core.store import NO_VERSION, Put, Record, Records

TTL_US_MIN: Final = 2 * SECOND_US
"""Minimum lease; half of it is the minimum time that a heartbeat has to arrive."""

MARGIN_US_MIN: Final = SECOND_US
BEATS_A_TTL: Final = 4
"""How often a lease should be renewed while it lasts."""

EXPIRED_US: Final = 1
"""Stored as the expiry of a lease that is released for a holder that could not: it is free."""

ELECTIONS: Final = "offices"
"""The scope of the leases of elected leaders."""

MONITOR: Final = "monitor"

_ROUND_TRIPS: Final = 100


@dataclass(frozen=True, slots=True)
class Grant:
    """The record of a lease.

    epoch: how often the lease was granted. until_us: when it expires by the store's clock; 0 if
    its holder released it, EXPIRED_US if that was for a holder that could not.
    """

    epoch: int
    holder: str
    ttl_us: int
    until_us: int


def grants(records: Records, scope: str) -> Mapping[str, Grant]:
    """Read all leases of a scope that were ever granted, by name, without holding any."""
    return {record.key: decode(record.value, Grant) for record in records_in(records, scope)}


def holder_of(records: Records) -> Grant | None:
    """Return the lease of the maintenance leader that was elected last; None: never any."""
    return grants(records, ELECTIONS).get(MONITOR)


def set_free(
    records: Records, scope: str, name: str, *, version: bytes, holder: str | None = None
) -> Grant | None:
    """Revoke a lease; its holder finds it lost at the next heartbeat. version: random.

    Until then both it and the next holder may believe that they hold it: the epoch refuses what
    the old one writes from then on.

    Args: holder: only if this one holds it.

    Returns: the revoked grant; None: it was never granted, or changed just now.
    """
    record = record_at(records, scope, name)
    if record is None:
        return None
    grant = decode(record.value, Grant)
    if holder not in (None, grant.holder):
        return None
    put = Put(name, version, encode(replace(grant, until_us=0)), expect=record.version)
    return grant if records.commit(scope, (put,)) else None


class _Sight(NamedTuple):
    """A record as it was read, and since when it is unchanged, on this machine's clock."""

    grant: Grant
    version: bytes
    since_us: int


class _Holding(NamedTuple):
    """A lease that is held, and until when that is certain, on this machine's monotonic clock."""

    grant: Grant
    version: bytes
    sure_until_us: int


class Leases:
    """The leases of one scope, as one holder sees them; in steps, without a thread.

    A scope is a partition of records: the shards of a consumer group, or the elections.

    Args:
        holder: Unique to the process and the try, such as `<host>:<pid>:<random>`.
        ttl_us: How long a grant lasts without a heartbeat, at least TTL_US_MIN.
    """

    def __init__(
        self,
        records: Records,
        scope: str,
        holder: str,
        *,
        ttl_us: int,
        time: StoreTime,
        clock: Clock,
        ids: Ids,
    ) -> None:
        assert ttl_us >= TTL_US_MIN
        self.holder = holder
        self.ttl_us = ttl_us
        self._records = records
        self._scope = scope
        self._time = time
        self._clock = clock
        self._ids = ids
        self._seen: dict[str, _Sight] = {}
        self._held: dict[str, _Holding] = {}
        self._expired: set[str] = set()
        self._round_trips_us: deque[int] = deque(maxlen=_ROUND_TRIPS)

    # What is known

    def look(self) -> Mapping[str, Grant]:
        """Read all leases of the scope that were ever granted."""
        records = {record.key: record for record in self._all()}
        now_us = self._clock.monotonic_us()  # after the read: a heartbeat may be that young
        for record in records.values():
            self._note(record, now_us)
        return {name: self._seen[name].grant for name in records}

    def seen(self, name: str) -> Grant | None:
        """Return the grant of a lease, as it was last read."""
        sight = self._seen.get(name)
        return None if sight is None else sight.grant

    def is_free(self, name: str) -> bool:
        """Return whether a lease can be taken, as of the last read.

        It was released, it has expired by the store's clock, or its record was unchanged for 1.25
        times its duration on this machine's own clock: no wall clocks are compared (rule L3).
        """
        sight = self._seen.get(name)
        if sight is None:
            return True
        grant, _, since_us = sight
        if grant.holder == self.holder:
            return name not in self.held
        has_lapsed = grant.until_us <= self._time.earliest_us()
        return has_lapsed or self._clock.monotonic_us() - since_us >= grant.ttl_us * 5 // 4

    @property
    def held(self) -> Collection[str]:
        """The leases that are certainly held."""
        now_us = self._clock.monotonic_us()
        held = list(self._held.items())  # another thread may lose some meanwhile
        return [name for name, holding in held if now_us < holding.sure_until_us]

    def epoch(self, name: str) -> int | None:
        """Return the epoch of a lease that is certainly held, otherwise None."""
        holding = self._held.get(name)
        if holding is None or self._clock.monotonic_us() >= holding.sure_until_us:
            return None
        return holding.grant.epoch

    def has_expired(self, name: str) -> bool:
        """Return whether the last holder let the lease expire; until `clear_expired`."""
        return name in self._expired

    def clear_expired(self, name: str) -> None:
        """Note that the unfinished work of the last holder is done."""
        self._expired.discard(name)

    def sure_us(self, name: str) -> int:
        """Return how long a lease is certainly held if no heartbeat arrives."""
        holding = self._held.get(name)
        return 0 if holding is None else max(0, holding.sure_until_us - self._clock.monotonic_us())

    # Changes

    def take(self, name: str) -> int | None:
        """Take a lease that is free as of the last read.

        Returns: its epoch, larger than all before; None: another holder was first, or the outcome
          is unknown: then the lease has no holder until it expires.
        """
        self._drop_doubtful()
        if not self.is_free(name):
            return None
        sight = self._seen.get(name)
        epoch = 1 if sight is None else sight.grant.epoch + 1
        grant = Grant(epoch, self.holder, self.ttl_us, 0)
        expect = NO_VERSION if sight is None else sight.version
        if sight is None or not sight.grant.until_us:
            self._expired.discard(name)
        else:
            self._expired.add(name)
        if self._write({name: _Holding(grant, expect, 0)}):
            return epoch
        self._read_back(name)
        return self.epoch(name)

    def renew(self) -> list[str]:
        """Send a heartbeat: renew all leases that are held, in one write.

        A lease that became uncertain is not renewed: its work has stopped.

        Returns: the names of the lost leases.
        """
        before = set(self._held)
        self._drop_doubtful()
        if self._held and not self._write(dict(self._held)):
            for name in list(self._held):  # one of them is lost, or the outcome is unknown
                self._read_back(name)
            if self._held:
                self._write(dict(self._held))
        return sorted(before - set(self.held))

    def release(self, names: Collection[str], *, expired: Collection[str] = ()) -> None:
        """Release leases, so that others need not wait until they expire.

        Args: expired: those that the next holder is to see as expired; see `has_expired`.
        """
        for name in names:
            holding = self._held.pop(name, None)
            if holding is not None:
                until_us = EXPIRED_US if name in expired else 0
                put = self._put(name, replace(holding.grant, until_us=until_us), holding.version)
                self._records.commit(self._scope, (put,))

    def hold_or_take(self, name: str) -> int | None:
        """Renew the leases, and take this one if it is not held and free.

        Returns: the epoch; None where another holder has it.
        """
        self.renew()
        if self.epoch(name) is None:
            self.look()
            return self.take(name)
        return self.epoch(name)

    # Steps

    def _write(self, wanted: Mapping[str, _Holding]) -> bool:
        """Write grants that last from now on, each on its version, atomically."""
        sent_us = self._clock.monotonic_us()  # before it is sent: rule L4
        until_us = self._time.latest_us() + self.ttl_us
        puts = [
            self._put(name, replace(holding.grant, until_us=until_us), holding.version)
            for name, holding in wanted.items()
        ]
        sure_until_us = sent_us + self.ttl_us - self._margin_us()
        written = {
            put.key: _Holding(decode(put.value, Grant), put.version, sure_until_us) for put in puts
        }
        try:
            is_written = self._records.commit(self._scope, puts)
        except Unknown:
            is_written = self._stand_as(written)
        self._round_trips_us.append(self._clock.monotonic_us() - sent_us)
        if is_written:
            self._held.update(written)
        return is_written

    def _stand_as(self, written: Mapping[str, _Holding]) -> bool:
        """Return whether the records are as they were written; raises where that is unknown."""
        present = {record.key: record.version for record in self._all()}
        return all(present.get(name) == holding.version for name, holding in written.items())

    def _read_back(self, name: str) -> None:
        """Read the holder of a lease: an epoch is granted once, so it is decisive."""
        record = next((record for record in self._all() if record.key == name), None)
        held = self._held.get(name)
        if record is not None:
            self._note(record, self._clock.monotonic_us())
        if held is None:
            return
        grant = self._seen[name].grant if record is not None else None
        if record is None or grant is None or not _is_same(grant, held.grant):
            del self._held[name]
        else:  # an earlier heartbeat arrived late; until when the lease lasts stays as it was
            self._held[name] = held._replace(version=record.version)

    def _drop_doubtful(self) -> None:
        sure = self.held
        self._held = {name: holding for name, holding in self._held.items() if name in sure}

    def _put(self, name: str, grant: Grant, expect: bytes) -> Put:
        return Put(name, self._ids.token(), encode(grant), expect=expect)

    def _margin_us(self) -> int:
        """Return how long before its end a lease is uncertain: four slow round trips, or more."""
        trips = sorted(self._round_trips_us)
        slow_us = trips[(len(trips) - 1) * 99 // 100] if trips else 0
        wanted_us = max(self.ttl_us // 10, 4 * slow_us, MARGIN_US_MIN)
        return min(wanted_us, self.ttl_us // 2)

    def _note(self, record: Record, now_us: int) -> None:
        known = self._seen.get(record.key)
        if known is None or known.version != record.version:
            self._seen[record.key] = _Sight(decode(record.value, Grant), record.version, now_us)

    def _all(self) -> Iterator[Record]:
        return records_in(self._records, self._scope)


def _is_same(grant: Grant, other: Grant) -> bool:
    return (grant.epoch, grant.holder) == (other.epoch, other.holder) and grant.until_us > 0
