"""Writes all that a store holds into files, while the store is frozen (rules X7 and X8).

A frozen store accepts and starts no jobs. Workers end what they hold, and go on by themselves after
the export, or a minute after its process was killed.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from dueline.admin.exports.files import Manifest, Writer
from dueline.admin.exports.lines import (
    Line,
    WatermarkLine,
    line_of_job,
    line_of_record,
    line_of_row,
)
from dueline.admin.move import GRACE_US
from dueline.admin.move_plan import lanes_of
from dueline.admin.move_records import OWN, all_records, kind_of
from dueline.coordination import failed_starts
from dueline.core import features
from dueline.core.clock import SECOND_US
from dueline.core.codec import encode
from dueline.core.engine import Engine
from dueline.core.errors import Conflict
from dueline.core.job import Job
from dueline.core.pagination import parts_of, record_at, rows_in, walk
from dueline.core.queue_settings import StreamSettings
from dueline.core.readable_records import readable
from dueline.core.store import NO_VERSION, SETTINGS_PARTITION, Delete, Put
from dueline.core.store_capabilities import ShowsTransactions
from dueline.jobs import orders
from dueline.jobs.completion import complete, stored
from dueline.jobs.history import HISTORY_SUFFIX
from dueline.streams import resharding

FROZEN_US: Final = 60 * SECOND_US
"""Time after which a store is no longer frozen unless its export goes on, in microseconds."""

LEFT: Final = (OWN | {failed_starts.PARTITION}) - {
    "cancels-at", "runtimes", "scales", orders.KIND,
}  # fmt: skip
"""Kinds of records about the processes of a store, which an export leaves out."""

_RENEW_US: Final = FROZEN_US // 6
_REST_S: Final = 0.5
_PAGE: Final = 500
_SAID_EVERY: Final = 100_000


class Freeze:
    """Keeps a store frozen; `renew` must be called several times a minute.

    Raises: Conflict: another export reads the store, or it has moved.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._version = NO_VERSION
        self._renewed_us = 0
        engine.catalog.features.moves = True
        engine.catalog.features.check()
        if moved_to := engine.catalog.features.moved_to:
            raise Conflict(f"The store has moved to {moved_to}.", hint="Export that store.")
        if not self._put():
            raise Conflict(
                "Another export reads the store, or was killed less than a minute ago.",
                hint="Wait for it, then try again.",
            )
        self._touch()

    def renew(self) -> None:
        """Extend the freeze, if some time has passed.

        Raises: Conflict: it has expired, since the process was stopped or the store was away.
        """
        if self._engine.clock.monotonic_us() - self._renewed_us < _RENEW_US:
            return
        if not self._put():
            raise Conflict(
                "The export took more than a minute for a page, so the store is in use again.",
                hint="Run the command again.",
            )

    def sleep(self, rest_s: float) -> None:
        """Sleep, in seconds, and stay frozen."""
        while rest_s > 0:
            self._engine.clock.sleep(min(rest_s, _RENEW_US / SECOND_US))
            rest_s -= _RENEW_US / SECOND_US
            self.renew()

    def end(self) -> None:
        """Let processes use the store."""
        delete = Delete(features.FROZEN, expect=self._version)
        self._engine.store.commit(features.PARTITION, (delete,))
        self._touch()

    def _put(self) -> bool:
        engine, version = self._engine, self._engine.ids.token()
        renewed_us, expires_us = engine.clock.monotonic_us(), engine.time.latest_us() + FROZEN_US
        put = Put(features.FROZEN, version, encode({}), self._version, expires_us)
        if not engine.store.commit(features.PARTITION, (put,)):
            return False
        self._version, self._renewed_us = version, renewed_us
        return True

    def _touch(self) -> None:
        """Let every process read the features within seconds, as `Catalog.adopt` does."""
        for queue in self._engine.catalog.names():
            self._engine.catalog.touch(queue)


def export(
    engine: Engine,
    folder: Path,
    *,
    report: Callable[[str], None],
    grace_us: int = GRACE_US,
) -> Manifest:
    """Write all that a store holds into a folder; return its manifest.

    Args:
      engine: The engine of the store; it is used for nothing else.
      folder: A folder that does not exist or is empty.
      report: Called with a sentence at each stage.
      grace_us: As GRACE_US.

    Raises:
      Conflict: The folder has other files, or the store has moved or is being exported.
      BadInput: The folder cannot be written.
      ConfigError: The store cannot list its lanes or records.
    """
    writer = Writer(folder)
    freeze = Freeze(engine)
    try:
        at_us = engine.time.latest_us()
        report("the store is frozen; waiting for calls that began before")
        freeze.sleep(grace_us / SECOND_US)
        _await_transactions(engine, freeze, report)
        _await_claims(engine, freeze, report)
        report("writing")
        for count, line in enumerate(lines_of(engine), 1):
            writer.add(line)
            if not count % _PAGE:
                freeze.renew()
            if not count % _SAID_EVERY:
                report(f"writing: {count} lines")
        freeze.renew()
        known = features.names_of(engine.store) & features.KNOWN
        store = engine.store.describe()["store"]
        return writer.end(features=sorted(known), store=store, at_us=at_us)
    finally:
        freeze.end()


def lines_of(engine: Engine) -> Iterator[Line]:
    """Yield all lines of a store: settings, other records, streams and histories, and jobs.

    Records come before the events that checkpoints among them name, and jobs come last.
    """
    for queue in engine.catalog.names():
        if (record := record_at(engine.store, SETTINGS_PARTITION, queue)) is not None:
            put = Put(record.key, record.version, record.value)
            yield line_of_record(SETTINGS_PARTITION, put)
    for partition, put in all_records(engine.store):
        if partition != SETTINGS_PARTITION and kind_of(partition) not in LEFT:
            yield line_of_record(partition, put)
    for stream, shards in _streams(engine):
        for shard in range(shards):
            yield from _events(engine, stream, shard)
    for lane in dict.fromkeys(lanes_of(engine)):
        for page in walk(engine.store, lane, page_size=_PAGE):
            yield from map(line_of_job, page)


def _streams(engine: Engine) -> Iterator[tuple[str, int]]:
    """Yield the names of all streams, and the number of their shards."""
    for queue in engine.catalog.names():
        if (entry := engine.catalog.entry(queue)) is not None:
            yield queue + HISTORY_SUFFIX, entry.settings.shards_read
    for record, settings in readable(engine.store, resharding.PARTITION, StreamSettings):
        yield record.key, settings.first + settings.shards


def _events(engine: Engine, stream: str, shard: int) -> Iterator[Line]:
    watermark_us = engine.store.close_until(stream, shard, at_us=0)
    for row in rows_in(engine.store, stream, shard, after=None):
        yield line_of_row(row)
    if watermark_us > 0:
        yield WatermarkLine(stream, shard, watermark_us)


# Waiting


def _await_transactions(engine: Engine, freeze: Freeze, report: Callable[[str], None]) -> None:
    """Wait for transactions that may have read the store before it was frozen."""
    store = engine.store
    if not isinstance(store, ShowsTransactions):
        return
    before = store.open_transactions()
    while before := before & store.open_transactions():
        report(f"waiting for {len(before)} open transactions")
        freeze.sleep(_REST_S)


def _await_claims(engine: Engine, freeze: Freeze, report: Callable[[str], None]) -> None:
    """Wait until no job runs, and complete ends that a process left behind (rule P5).

    Nothing is claimed any more, so a page that was waited for stays without claims.
    """
    for lane in dict.fromkeys(lanes_of(engine)):
        for page in walk(engine.store, lane, page_size=_PAGE):
            rows = [row for row in page if row.is_claimed() or row.outcome]
            while held := _held(engine, rows):
                job = held[0]
                left_s = max(0, job.at_us - engine.time.earliest_us()) // SECOND_US
                report(
                    f"waiting for job {job.id.hex()} on worker {job.worker}, whose claim ends in "
                    f"{left_s} s unless it is extended"
                )
                freeze.sleep(_REST_S)
                rows = [
                    row for part in parts_of([row.id for row in held], _PAGE)
                    for row in engine.store.find(part) if row is not None
                ]  # fmt: skip
            freeze.renew()


def _held(engine: Engine, rows: Sequence[Job]) -> list[Job]:
    """Complete the ends of rows; return those whose claims are under way."""
    complete(engine.store, [stored(row) for row in rows if row.outcome])
    now_us = engine.time.earliest_us()
    return [row for row in rows if not row.outcome and row.is_claimed() and row.at_us > now_us]
