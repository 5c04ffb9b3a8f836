"""Which queues there are, what they are set to."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from dueline.core.clock import SECOND_US, Clock
from dueline.core.codec import decode, encode
from dueline.core.errors import (
    Conflict,
    NotFound,
    SchemaMismatch,
    StoreCorrupt,
    StoreUnavailable,
    Unknown,
)
from dueline.core.features import Features
from dueline.core.ids import Ids
from dueline.core.lane import Lane, living_queue
from dueline.core.pagination import record_at
from dueline.core.queue_settings import QueueSettings, check_queue_name, check_settings, with_shards
from dueline.core.store import NO_VERSION, SETTINGS_PARTITION, Delete, Put, Records

SETTINGS_AGE_US_MAX = 4_900_000  # then read again: a change is seen everywhere within 5 s

LATE_US = 10 * SECOND_US
"""Who put a job into a queue this long after it read of it looks whether it still stands."""

_PAGE = 500
_ROUNDS_MAX = 5
_NAMES_SHOWN = 5


class Entry(NamedTuple):
    """A queue as it was read.

    read_us: on the own clock, up to when it is known to be so. seen_us: when it was read last.
    leaving_us: None: all of it stays. 0: the shards that are left over, or without any the whole
    queue, are about to go. Else since when all who read of it, by the store's clock, see that.
    """

    settings: QueueSettings
    version: bytes
    read_us: int
    seen_us: int
    leaving_us: int | None

    def stands(self, shard: int) -> bool:
        """Tell whether jobs that come to a shard are read, and will be."""
        if self.leaving_us is None:
            return shard < self.settings.shards_read
        return self.settings.has_leftovers and shard < self.settings.shards


@dataclass(frozen=True, slots=True)
class _Mark:
    """What the record of a queue says beside its settings."""

    leaving_us: int | None = None


class Catalog:
    """The settings of all queues of a store, cached for a few seconds."""

    def __init__(
        self, records: Records, *, clock: Clock, ids: Ids, defaults: QueueSettings
    ) -> None:
        self._records = records
        self._ids = ids
        self._clock = clock
        self._defaults = defaults
        self._settings: dict[str, Entry] = {}
        self._known: dict[str, QueueSettings] = {}
        self.features = Features(records, ids=ids)

    def inside(self, records: Records) -> "Catalog":
        """Return a catalog of the same store as an open transaction sees it; nothing is cached."""
        made = Catalog(records, clock=self._clock, ids=self._ids, defaults=self._defaults)
        made.features = self.features.inside(records)
        return made

    @property
    def defaults(self) -> QueueSettings:
        """A new queue's settings."""
        return self._defaults

    def settings(self, queue: str) -> QueueSettings:
        """Read a queue's settings, as they stood at most 5 s ago; the first use makes it.

        A record that cannot be read changes nothing of what was read before.

        Raises:
          SchemaMismatch: the store uses a feature that this version does not know.
          StoreCorrupt: the queue's record cannot be read, and never could.
        """
        cached = self._settings.get(queue)
        now_us = self._clock.monotonic_us()
        if cached is not None and now_us - cached.read_us < SETTINGS_AGE_US_MAX:
            return cached.settings
        try:
            return self._read(queue).settings
        except SchemaMismatch:
            raise
        except StoreCorrupt:  # jobs that are held are finished under what was known
            if (known := self._known.get(queue)) is None:
                raise
            return known

    def is_current(self, queue: str, version: bytes) -> bool:
        """Tell whether the cached settings are of this version, which `lanes` has just answered.

        If so, they need not be read again for a while.
        """
        cached = self._settings.get(queue)
        if cached is None or cached.version != version:
            return False
        self._settings[queue] = cached._replace(read_us=self._clock.monotonic_us())
        return True

    def forget(self, queue: str) -> None:
        """Read the queue's settings anew at their next use."""
        self._settings.pop(queue, None)

    def configure(self, queue: str, **changes: object) -> QueueSettings:
        """Store changes to a queue's settings; the queue is made if need be.

        Raises:
          BadInput: a value out of range; nothing was written.
          Conflict: others change the same settings again and again; nothing was written.
        """
        check_queue_name(queue)
        check_settings(replace(self._defaults, **changes))  # type: ignore[arg-type]  # see below
        return self.change(queue, lambda old: replace(old, **changes))  # type: ignore[arg-type]

    def adopt(self, feature: str) -> None:
        """Write down that the store uses a feature (`dueline.core.features`).

        Where other processes may not know it, all queues get their settings stored anew, so that
        every process reads the names within SETTINGS_AGE_US_MAX: rows of the feature must not be
        written before (rule V2).

        Raises: SchemaMismatch: the store uses a feature that this version does not know.
        """
        if self.features.use(feature):
            for queue in self.names():
                entry = self.entry(queue)
                if entry is not None:
                    self._put(queue, entry.settings, entry.version, entry.leaving_us)

    def change(self, queue: str, how: Callable[[QueueSettings], QueueSettings]) -> QueueSettings:
        """Store settings that follow from those that there are; the queue is made if need be.

        Raises: as `configure`.
        """
        for _ in range(_ROUNDS_MAX):
            old, version, *_ = self._read(queue)
            new = check_settings(how(old))
            new = with_shards(replace(new, shards_read=old.shards_read), new.shards)
            if new == old or self._put(queue, new, version):
                return self.settings(queue)
        raise Conflict(f"The settings of {queue} keep changing.", hint="Try again.")

    def chosen(self, queue: str | None) -> list[str]:
        """Name one queue, or all of them where None is asked for; none is made.

        Raises: BadInput: that is no queue's name. NotFound: there is no such queue.
        """
        if queue is None:
            return self.names()
        if record_at(self._records, SETTINGS_PARTITION, check_queue_name(queue)) is None:
            names = self.names()
            raise NotFound(
                f"There is no queue {queue}.",
                hint=f"There is {', '.join(names[:_NAMES_SHOWN])}." if names else "There is none.",
            )
        return [queue]

    # Queues that nobody uses

    def used(self, lanes: Iterable[Lane]) -> None:
        """Keep the shards into which jobs were just put; most often that takes no look (rule Q1).

        Raises: Unknown: the store did not answer; some of them may not be read any more.
        """
        largest: dict[str, int] = {}
        for lane in lanes:
            queue = living_queue(lane.queue)
            largest[queue] = max(lane.shard, largest.get(queue, 0))
        for queue, shard in largest.items():
            self._keep(queue, shard)

    def _keep(self, queue: str, shard: int) -> None:
        """Keep the shards of a queue up to one."""
        cached = self._settings.get(queue)
        now_us = self._clock.monotonic_us()
        if cached and now_us - cached.seen_us <= LATE_US and cached.stands(shard):
            return
        try:
            for _ in range(_ROUNDS_MAX):
                entry = self._read(queue)
                if entry.stands(shard):
                    return
                read = max(entry.settings.shards_read, shard + 1)
                if self._put(queue, replace(entry.settings, shards_read=read), entry.version):
                    return
        except (StoreUnavailable, Conflict) as error:
            raise Unknown(f"The store did not say whether the queue {queue} stands.") from error
        raise Unknown(f"The queue {queue} keeps changing.")

    def entry(self, queue: str) -> Entry | None:
        """Read how a queue stands now; it is not made."""
        read_us = self._clock.monotonic_us()
        record = record_at(self._records, SETTINGS_PARTITION, queue)
        if record is None:
            return None
        settings = decode(record.value, QueueSettings)
        leaving_us = decode(record.value, _Mark).leaving_us
        return Entry(settings, record.version, read_us, read_us, leaving_us)

    def mark_leaving(self, queue: str, entry: Entry, since_us: int) -> bool:
        """Say that what is left over of a queue is about to go, if it stands as it was read."""
        return self._put(queue, entry.settings, entry.version, leaving_us=since_us)

    def remove(self, queue: str, entry: Entry) -> bool:
        """Let a queue vanish, if it stands as it was read."""
        self.forget(queue)
        return self._records.commit(SETTINGS_PARTITION, (Delete(queue, expect=entry.version),))

    def narrow(self, queue: str, entry: Entry) -> bool:
        """Let the shards that are left over be read no more, if the queue stands as it was read."""
        settings = replace(entry.settings, shards_read=entry.settings.shards)
        return self._put(queue, settings, entry.version)

    def _read(self, queue: str) -> Entry:
        """Read how a queue stands; make it if need be."""
        check_queue_name(queue)
        for _ in range(_ROUNDS_MAX):
            entry = self.entry(queue)
            if entry is not None:
                self.features.check()
                self._settings[queue] = entry
                self._known[queue] = entry.settings
                return entry
            self._put(queue, self._defaults, NO_VERSION)
        raise Conflict(f"The queue {queue} cannot be made.", hint="Try again.")

    def _put(
        self, queue: str, settings: QueueSettings, expect: bytes, leaving_us: int | None = None
    ) -> bool:
        self.forget(queue)
        value = encode(settings)
        if leaving_us is not None:
            value = encode({**asdict(settings), "leaving_us": leaving_us})
        put = Put(queue, self._ids.token(), value, expect=expect)
        return self._records.commit(SETTINGS_PARTITION, (put,))

    # All of them

    def names(self) -> list[str]:
        """List the queues, in order of their names."""
        found: list[str] = []
        after = None
        while True:
            page = self.names_after(after, _PAGE)
            found += page
            if len(page) < _PAGE:
                return found
            after = page[-1]

    def names_after(self, after: str | None, limit: int) -> list[str]:
        """List some queues, in order of their names, past `after`."""
        return [one.key for one in self._records.read(SETTINGS_PARTITION, after=after, limit=limit)]
