"""Reads an export into a store (rules X9 and X10).

Other processes refuse the store until everything is in it and was compared with the export. Each
write is repeatable, so a process that was killed is continued by the next one with the same export.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dueline.admin.exports.exporter import lines_of
from dueline.admin.exports.files import Reader, differences
from dueline.admin.exports.lines import (
    Digest,
    EventLine,
    JobLine,
    Line,
    RecordLine,
    WatermarkLine,
    is_result,
    job_of,
    line_of_job,
    put_of,
    queue_of,
    results_in,
    row_of,
)
from dueline.admin.move_plan import unfit
from dueline.admin.move_portions import PARTITION
from dueline.admin.move_records import LEASES, copy_leases, copy_results, kind_of, put_new
from dueline.core import features
from dueline.core.clock import SECOND_US
from dueline.core.codec import decode, encode
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, Conflict, StoreCorrupt, Unknown
from dueline.core.job import Job, JobId, State
from dueline.core.pagination import parts_of
from dueline.core.queue_settings import QueueSettings
from dueline.core.readable_records import value_at
from dueline.core.store import NO_VERSION, SETTINGS_PARTITION, Delete, Group, Put
from dueline.jobs import results, unique_records
from dueline.jobs.unique import rule_of

_STATE: Final = "import"
_PAGE: Final = 500
_KEPT_US: Final = 3600 * SECOND_US
"""Records that expire sooner may be gone before they are compared, in microseconds."""


@dataclass(frozen=True, slots=True)
class _State:
    """How far an import is.

    Attributes:
      digest: Digest of the export.
      parts: Number of parts that are stored.
      stage: filling, or done.
      merges: Whether the store may have other jobs.
      begun_us: When it began. Rows that are added to other jobs have no earlier position: workers
        may have read that far. It stays the same, so that a repeat adds the same rows.
    """

    digest: str
    begun_us: int
    parts: int = 0
    stage: str = "filling"
    merges: bool = False


@dataclass(slots=True)
class Imported:
    """What an import did. was_done: the same export had been imported before."""

    jobs: int = 0
    records: int = 0
    events: int = 0
    was_done: bool = False


class Importer:
    """Reads one export into a store; run it again to continue.

    Args:
      engine: The engine of the store; it is used for nothing else.
      reader: The export.
      report: Called with a sentence at each stage.
      merges: Add to a store that is not empty; what it has stays as it is.
    """

    def __init__(
        self,
        engine: Engine,
        reader: Reader,
        *,
        report: Callable[[str], None],
        merges: bool = False,
    ) -> None:
        self._engine = engine
        self._store = engine.store
        self._reader = reader
        self._report = report
        self._merges = merges
        self._settings: dict[str, QueueSettings] = {}
        self._name = f"{features.FILLING}the export {reader.manifest.digest[:16]}"
        engine.catalog.features.moves = True

    def run(self) -> Imported:
        """Import everything, and compare it.

        Raises:
          BadInput: The export cannot be read, or needs a newer version; nothing was changed.
          Conflict: The store is not empty, or another import or a move fills it.
          StoreCorrupt: The store holds something else than the export; it stays closed.
          StoreUnavailable: The store did not answer. Run it again.
        """
        manifest = self._reader.manifest
        if unknown := sorted(set(manifest.features) - features.KNOWN):
            raise BadInput(
                f"The export uses features that are unknown here: {', '.join(unknown)}.",
                hint=f"Use dueline {manifest.version}, which wrote it.",
            )
        state = self._state()
        if state is not None and state.stage == "done" and state.digest == manifest.digest:
            self._open()
            return Imported(was_done=True)
        self._report("checking the files")
        self._reader.check()
        state = self._begin(state)
        done, watermarks = Imported(), list[WatermarkLine]()
        for number, lines in self._reader.parts():
            self._count(lines, done)
            watermarks += (line for line in lines if isinstance(line, WatermarkLine))
            if number < state.parts:
                continue
            self._write(lines, state.begun_us)
            self._store_state(replace(state, parts=number + 1))
            self._report(f"importing: part {number + 1} of {len(manifest.parts)}")
        for line in watermarks:  # a repeated append must not be below it
            self._store.close_until(line.stream, line.shard, at_us=line.at_us)
        self._report("comparing the store with the export")
        self._compare()
        self._store_state(replace(state, parts=len(manifest.parts), stage="done"))
        self._open()
        return done

    # Stages

    def _begin(self, state: _State | None) -> _State:
        """Keep other processes out of the store."""
        catalog = self._engine.catalog
        catalog.features.check()
        catalog.features.expect_here()
        digest = self._reader.manifest.digest
        filling = {
            name for name in features.names_of(self._store) if name.startswith(features.FILLING)
        }
        if filling - {self._name}:
            name = min(filling - {self._name}).removeprefix(features.FILLING)
            raise Conflict(f"The store is being filled from {name}.", hint="Continue that first.")
        if state is not None and state.stage == "filling" and state.digest == digest:
            self._merges = state.merges
        else:
            self._expect_empty()
            state = _State(digest, self._engine.time.latest_us(), merges=self._merges)
        self._store.commit(features.PARTITION, (Put(self._name, self._engine.ids.token(), b"{}"),))
        self._store_state(state)
        for queue in catalog.names():
            catalog.touch(queue)
        for name in (*features.OF_NEW, *self._reader.manifest.features):
            catalog.adopt(name)
        return state

    def _expect_empty(self) -> None:
        lines = [] if self._merges else list(unfit(self._engine))
        if lines:
            words = "; ".join(f"{line.many} {line.what}" for line in lines)
            raise Conflict(
                f"The store is not empty: {words}. Nothing was imported.",
                hint="Import into an empty store, or pass --merge to add to this one.",
            )

    def _open(self) -> None:
        """Let other processes use the store."""
        self._store.commit(features.PARTITION, (Delete(self._name),))

    def _state(self) -> _State | None:
        return value_at(self._store, PARTITION, _STATE, _State)[0]

    def _store_state(self, state: _State) -> None:
        put = Put(_STATE, self._engine.ids.token(), encode(state))
        self._store.commit(PARTITION, (put,))

    @staticmethod
    def _count(lines: Iterable[Line], done: Imported) -> None:
        for line in lines:
            done.jobs += isinstance(line, JobLine)
            done.records += isinstance(line, RecordLine)
            done.events += isinstance(line, EventLine)

    # Writing

    def _write(self, lines: Sequence[Line], begun_us: int) -> None:
        """Store a part; what is there already stays."""
        records = [line for line in lines if isinstance(line, RecordLine)]
        for line in records:
            if line.partition == SETTINGS_PARTITION:
                self._write_settings(line)
        kept = [(line.partition, put_of(line)) for line in records]
        copy_results(self._store, (kept for kept in kept if kind_of(kept[0]) == "results"))
        copy_leases(self._store, (kept for kept in kept if kind_of(kept[0]) == LEASES))
        apart = {"results", LEASES, SETTINGS_PARTITION}
        put_new(self._store, (kept for kept in kept if kind_of(kept[0]) not in apart))
        self._append([line for line in lines if isinstance(line, EventLine)])
        self._add([line for line in lines if isinstance(line, JobLine)], begun_us)

    def _write_settings(self, line: RecordLine) -> None:
        """Store the settings of a queue, with the buckets that suit this store."""
        catalog = self._engine.catalog
        theirs, entry = decode(put_of(line).value, QueueSettings), catalog.entry(line.key)
        mine = catalog.defaults if entry is None else entry.settings
        settings = replace(theirs, width_us=mine.width_us)
        if entry is not None and self._merges:
            read = max(theirs.shards_read, mine.shards_read)
            settings = replace(mine, shards_read=read)
        expect = NO_VERSION if entry is None else entry.version
        put = Put(line.key, self._engine.ids.token(), encode(settings), expect)
        if not self._store.commit(SETTINGS_PARTITION, (put,)):
            raise Conflict(f"Another process changes the queue {line.key}.", hint="Try again.")
        catalog.forget(line.key)

    def _append(self, lines: Sequence[EventLine]) -> None:
        for part in parts_of(lines, _PAGE):
            if None in self._store.append(list(map(row_of, part))):
                raise Unknown("The store did not confirm events.", hint="Run the command again.")

    def _add(self, lines: Sequence[JobLine], begun_us: int) -> None:
        for part in parts_of(lines, _PAGE):
            rows = [self._row_of(line, begun_us) for line in part]
            if not all(self._store.add(rows)):
                raise Unknown("The store did not confirm jobs.", hint="Run the command again.")
            keys = [
                unique_records.take(row, rule, expect=row.id)
                for row in rows
                if row.opts and row.state != State.DEAD and (rule := rule_of(row)) is not None
            ]
            self._store.together([Group(commits=(key,)) for key in keys])

    def _row_of(self, line: JobLine, begun_us: int) -> Job:
        queue = queue_of(line)
        settings = self._settings.get(queue)
        if settings is None:
            settings = self._settings[queue] = self._engine.catalog.settings(queue)
        is_due = self._merges and line.state != State.DEAD
        return job_of(line, settings, not_before_us=begun_us if is_due else 0)

    # Comparing

    def _compare(self) -> None:
        """Compare the store with the export.

        Raises: StoreCorrupt: they differ.
        """
        until_us = self._engine.time.latest_us() + _KEPT_US
        wanted = Digest(until_us, has_results=False)
        for _, lines in self._reader.parts():
            for line in lines:
                wanted.add(line)
            self._compare_results(wanted, lines)
            if self._merges:
                self._compare_jobs([line for line in lines if isinstance(line, JobLine)])
        if self._merges:
            return
        here = Digest(until_us, has_results=False)
        for line in lines_of(self._engine):
            here.add(line)
        if (wanted.counts, wanted.hex()) != (here.counts, here.hex()):
            raise _different(differences(wanted.counts, here.counts))

    def _compare_results(self, wanted: Digest, lines: Iterable[Line]) -> None:
        kept = (line for line in lines if isinstance(line, RecordLine) and is_result(line))
        expected = dict(result for line in kept if wanted.has(line) for result in results_in(line))
        for part in parts_of(expected, _PAGE):
            ids = [JobId(bytes.fromhex(digits)) for digits in part]
            there = results.read_many(self._store, ids)
            if missing := [job.hex() for job in ids if there.get(job) != expected[job.hex()]]:
                raise _different(f"{len(missing)} results, the first of job {missing[0]}")

    def _compare_jobs(self, lines: Iterable[JobLine]) -> None:
        for part in parts_of(lines, _PAGE):
            rows = self._store.find([JobId(bytes.fromhex(line.id)) for line in part])
            there = {row.id.hex(): line_of_job(row) for row in rows if row is not None}
            if missing := [line.id for line in part if line.id not in there]:
                raise _different(f"{len(missing)} jobs, the first of them {missing[0]}")


def _different(what: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"After the import, the store differs from the export: {what}. It stays closed.",
        hint="Empty the store and import again; if it is repeated, report it.",
    )
