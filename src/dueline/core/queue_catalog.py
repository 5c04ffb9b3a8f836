"""The queues of a store and their settings."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from dueline.core import features
from dueline.core.clock import SECOND_US, Clock
from dueline.core.codec import decode, encode
from dueline.core.durations import span_text
from dueline.core.errors import (
    BadInput,
    Conflict,
    NotFound,
    SchemaMismatch,
    StoreCorrupt,
    StoreMoved,
    StoreUnavailable,
    Unknown,
)
from dueline.core.features import Features
from dueline.core.ids import Ids
from dueline.core.lane import Lane, living_queue, tenant_with_needs
from dueline.core.pagination import record_at
from dueline.core.queue_settings import QueueSettings, check_queue_name, check_settings, with_shards
from dueline.core.store import NO_VERSION, SETTINGS_PARTITION, Delete, Put, Records
from dueline.core.worker_needs import Pairs, text_of

SETTINGS_AGE_US_MAX = 4_900_000  # then read again: a change is seen everywhere within 5 s
SLOW_READS = 10  # or after this number of such reads: a store that answers late is read less often

LATE_US = 10 * SECOND_US
"""After this time, a process that stored a job checks that the queue still exists."""

_PAGE = 500
_ROUNDS_MAX = 5
_NAMES_SHOWN = 5


class Entry(NamedTuple):
    """A queue as it was read.

    read_us: own clock, when it was last known to be current, which lasts for age_us_max. seen_us:
    when it was last read. leaving_us: None if the queue stays; 0 if its leftover shards, or without
    any the whole queue, are about to be removed; else the time since which all readers see that.
    """

    settings: QueueSettings
    version: bytes
    read_us: int
    seen_us: int
    leaving_us: int | None
    age_us_max: int = SETTINGS_AGE_US_MAX

    def stands(self, shard: int) -> bool:
        """Return whether workers read a shard now and later."""
        if self.leaving_us is None:
            return shard < self.settings.shards_read
        return self.settings.has_leftovers and shard < self.settings.shards


@dataclass(frozen=True, slots=True)
class _Mark:
    """The part of a queue's record that is not settings."""

    leaving_us: int | None = None


class Catalog:
    """The settings of all queues of a store, cached for a few seconds.

    Args:
      records: The store.
      clock: This machine's clock.
      ids: The source of tokens.
      defaults: Settings of a new queue.

    Attributes:
      changes: How often settings were read that had been stored again meanwhile.
    """

    def __init__(
        self,
        records: Records,
        *,
        clock: Clock,
        ids: Ids,
        defaults: QueueSettings,
    ) -> None:
        self._records = records
        self._ids = ids
        self._clock = clock
        self._defaults = defaults
        self._settings: dict[str, Entry] = {}
        self._known: dict[str, Entry] = {}
        self.changes = 0
        self.features = Features(records, ids=ids)

    def inside(self, records: Records) -> "Catalog":
        """Return a catalog of the same store inside an open transaction; it caches nothing."""
        made = Catalog(records, clock=self._clock, ids=self._ids, defaults=self._defaults)
        made.features = self.features.inside(records)
        return made

    @property
    def defaults(self) -> QueueSettings:
        """The settings of a new queue."""
        return self._defaults

    def settings(self, queue: str, *, age_us_max: int = 0) -> QueueSettings:
        """Return a queue's settings, at most 5 s old; the first use creates the queue.

        If the record becomes unreadable, the settings that were read before stay in use.

        Args:
          queue: The queue.
          age_us_max: Another maximum age, also on a slow store.

        Raises:
          SchemaMismatch: the store uses a feature that this version does not know.
          StoreCorrupt: the queue's record cannot be read, and was never read before.
        """
        cached = self._settings.get(queue)
        now_us = self._clock.monotonic_us()
        if cached is not None and now_us - cached.read_us < (age_us_max or cached.age_us_max):
            return cached.settings
        try:
            return self._read(queue).settings
        except SchemaMismatch:
            raise
        except StoreCorrupt:  # claimed jobs finish under the known settings
            if (known := self._known.get(queue)) is None:
                raise
            return known.settings

    def expect_here(self, queue: str, *, age_us_max: int = SETTINGS_AGE_US_MAX) -> QueueSettings:
        """Return a queue's settings, for calls that add jobs, claim them or change waiting ones.

        Raises:
          StoreMoved: the store has moved (rule X1).
          StoreUnavailable: an export reads it (rule X7).
          Others: as `settings`.
        """
        settings = self.settings(queue, age_us_max=age_us_max)
        if self.features.is_closed:  # see `Features.expect_here`, which is called at each enqueue
            self.features.expect_here()
        return settings

    def is_current(self, queue: str, version: bytes) -> bool:
        """Return whether the cached settings have this version, which `lanes` just returned.

        If so, they count as read now.
        """
        cached = self._settings.get(queue)
        if cached is None or cached.version != version:
            return False
        self._settings[queue] = cached._replace(read_us=self._clock.monotonic_us())
        return True

    def forget(self, queue: str) -> None:
        """Read the queue's settings again at their next use."""
        self._settings.pop(queue, None)

    def configure(self, queue: str, **changes: object) -> QueueSettings:
        """Change a queue's settings; create the queue if needed.

        Raises:
          BadInput: a value is out of range, or would change the width of the buckets of a queue
            that exists; nothing was written.
          Conflict: other processes keep changing the same settings; nothing was written.
        """
        check_queue_name(queue)
        check_settings(replace(self._defaults, **changes))  # type: ignore[arg-type]  # see below
        first = {name: value for name, value in changes.items() if name == "width_us"}
        return self.change(queue, lambda old: replace(old, **changes), **first)  # type: ignore[arg-type]

    def adopt(self, feature: str) -> None:
        """Record that the store uses a feature (`dueline.core.features`).

        If other processes may not know it, the settings of all queues are stored again, so that
        every process reads the names within SETTINGS_AGE_US_MAX. Rows of the feature must not be
        written before that (rule V2).

        Raises: SchemaMismatch: the store uses a feature that this version does not know.
        """
        if self.features.use(feature):
            for queue in self.names():
                self.touch(queue)

    def needy_tenant(self, tenant: str, needs: Pairs) -> str:
        """Return the `tenant` of the lanes of jobs that need something of their worker.

        Older workers, which would read a limit in it, refuse the store from now on.
        """
        if not needs:
            return tenant
        self.adopt(features.NEEDS)
        return tenant_with_needs(tenant, text_of(needs))

    def touch(self, queue: str) -> None:
        """Store the settings of a queue again, so that its workers read what depends on them."""
        entry = self.entry(queue)
        if entry is not None:
            self._put(queue, entry.settings, entry.version, entry.leaving_us)

    def upgrade(self) -> list[str]:
        """Use the features of a new store; return those that were missing.

        Call it when no process of an older version uses the store: they refuse it from then on.

        Raises: SchemaMismatch: the store uses a feature that this version does not know, or was
          made by a development version.
        """
        if not self.names_after(None, 1):
            self.features.check()
            return []
        self._check_features()
        missing = [feature for feature in features.OF_NEW if not self.features.has(feature)]
        for feature in missing:
            self.adopt(feature)
        return missing

    def change(
        self,
        queue: str,
        how: Callable[[QueueSettings], QueueSettings],
        *,
        width_us: int | None = None,
    ) -> QueueSettings:
        """Store settings computed from the present ones; create the queue if needed.

        Args:
          queue: The queue.
          how: Computes the settings.
          width_us: Width of the buckets if the queue is created.

        Raises: as `configure`.
        """
        for _ in range(_ROUNDS_MAX):
            old, version, *_ = self._read(queue, width_us=width_us)
            self.features.expect_here()
            new = check_settings(how(old))
            _expect_width(queue, old.width_us, new.width_us)
            new = with_shards(replace(new, shards_read=old.shards_read), new.shards)
            if new == old or self._put(queue, new, version):
                return self.settings(queue)
        raise Conflict(f"The settings of {queue} keep changing.", hint="Try again.")

    def chosen(self, queue: str | None) -> list[str]:
        """Return one queue's name, or all names for None, without creating a queue.

        Raises: BadInput: the name is invalid. NotFound: the queue does not exist.
        """
        if queue is None:
            return self.names()
        if record_at(self._records, SETTINGS_PARTITION, check_queue_name(queue)) is None:
            names = self.names()
            raise NotFound(
                f"There is no queue {queue}.",
                hint=f"Queues: {', '.join(names[:_NAMES_SHOWN])}."
                if names
                else "There are no queues yet; the first job creates one.",
            )
        return [queue]

    # Unused queues

    def used(self, lanes: Iterable[Lane]) -> None:
        """Keep the shards of new jobs; usually without a read (rules Q1 and X1).

        Raises:
          Unknown: the store did not answer; some shards may no longer be read.
          StoreMoved: the store has moved.
        """
        largest: dict[str, int] = {}
        for lane in lanes:
            largest[lane.queue] = max(lane.shard, largest.get(lane.queue, 0))
        now_us = self._clock.monotonic_us()
        for queue, shard in largest.items():
            cached = self._settings.get(queue)
            if not (cached and now_us - cached.seen_us <= LATE_US and cached.stands(shard)):
                self._keep(living_queue(queue), shard)

    def _keep(self, queue: str, shard: int) -> None:
        """Keep the shards of a queue up to this one."""
        try:
            for _ in range(_ROUNDS_MAX):
                entry = self._read(queue)
                self.features.expect_here()
                if entry.stands(shard):
                    return
                read = max(entry.settings.shards_read, shard + 1)
                if self._put(queue, replace(entry.settings, shards_read=read), entry.version):
                    return
        except StoreMoved:
            raise
        except (StoreUnavailable, Conflict) as error:
            raise Unknown(f"The store did not confirm that the queue {queue} exists.") from error
        raise Unknown(f"The queue {queue} keeps changing.")

    def entry(self, queue: str) -> Entry | None:
        """Read a queue without creating it."""
        read_us = self._clock.monotonic_us()
        record = record_at(self._records, SETTINGS_PARTITION, queue)
        if record is None:
            return None
        settings = decode(record.value, QueueSettings)
        leaving_us = decode(record.value, _Mark).leaving_us
        return Entry(settings, record.version, read_us, read_us, leaving_us)

    def mark_leaving(self, queue: str, entry: Entry, since_us: int) -> bool:
        """Mark the leftovers of a queue for removal, if the queue is unchanged."""
        return self._put(queue, entry.settings, entry.version, leaving_us=since_us)

    def remove(self, queue: str, entry: Entry) -> bool:
        """Delete a queue, if it is unchanged."""
        self.forget(queue)
        return self._records.commit(SETTINGS_PARTITION, (Delete(queue, expect=entry.version),))

    def narrow(self, queue: str, entry: Entry) -> bool:
        """Stop reading leftover shards, if the queue is unchanged."""
        settings = replace(entry.settings, shards_read=entry.settings.shards)
        return self._put(queue, settings, entry.version)

    def _read(self, queue: str, *, width_us: int | None = None) -> Entry:
        """Read a queue; create it if needed, with buckets of this width."""
        check_queue_name(queue)
        for _ in range(_ROUNDS_MAX):
            entry = self.entry(queue)
            if entry is not None:
                self._check_features()
                slow_us = SLOW_READS * (self._clock.monotonic_us() - entry.seen_us)
                entry = entry._replace(age_us_max=max(SETTINGS_AGE_US_MAX, slow_us))
                known, self._known[queue] = self._known.get(queue), entry
                self._settings[queue] = entry
                if known is not None and known.version != entry.version:
                    self.changes += 1
                return entry
            if not self.names_after(None, 1):
                for feature in features.OF_NEW:  # no other process has read the names (rule V3)
                    self.features.use(feature)
            width_us = width_us or self._defaults.width_us
            self._put(queue, replace(self._defaults, width_us=width_us), NO_VERSION)
        raise Conflict(f"The queue {queue} cannot be created.", hint="Try again.")

    def _check_features(self) -> None:
        """Check the features of a store that has a queue."""
        self.features.check()
        if not self.features.has(features.BASE):
            raise SchemaMismatch.too_old(f"The store has queues without {features.BASE}")

    def _put(
        self, queue: str, settings: QueueSettings, expect: bytes, leaving_us: int | None = None
    ) -> bool:
        self.forget(queue)
        value = encode(settings)
        if leaving_us is not None:
            value = encode({**asdict(settings), "leaving_us": leaving_us})
        put = Put(queue, self._ids.token(), value, expect=expect)
        return self._records.commit(SETTINGS_PARTITION, (put,))

    # All queues

    def names(self) -> list[str]:
        """Return the names of the queues, in order."""
        names: list[str] = []
        after = None
        while True:
            page = self.names_after(after, _PAGE)
            names += page
            if len(page) < _PAGE:
                return names
            after = page[-1]

    def names_after(self, after: str | None, limit: int) -> list[str]:
        """Return some names of queues after `after`, in order."""
        return [
            record.key
            for record in self._records.read(SETTINGS_PARTITION, after=after, limit=limit)
        ]


def _expect_width(queue: str, width_us: int, asked_us: int) -> None:
    """Raise BadInput if the width of a queue's buckets would change: its lanes are numbered by it.

    Decision 0085.
    """
    if asked_us != width_us:
        raise BadInput(
            f"The buckets of the queue {queue} are {span_text(width_us)} wide; only a new queue "
            f"can have another width (got {span_text(asked_us)}).",
            hint=f"Declare a new queue with `bucket` and enqueue there; serve {queue} too until "
            f"`dueline queues drain {queue}` ends.",
        )
