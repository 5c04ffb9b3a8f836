"""The log of a durable function: write-once records at the positions of its calls.

A partition holds one generation of one job. Its keys are paths of numbers that sort as the calls
were made, and a few words for what has no position. Each write expects that the log is open under
the fence of its claim. Large values are written apart, plainly and
first, under the fence of their writer.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from dueline.core.attempt import DurablePlace
from dueline.core.codec import Cells, decode, encode
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, StoreCorrupt
from dueline.core.job import Job, JobId
from dueline.core.lane import living_queue
from dueline.core.logging import log
from dueline.core.pagination import record_at, records_in
from dueline.core.store import NO_VERSION, Commit, Group, Put, Record, Records, Row
from dueline.durable.driving import Call, Deciding
from dueline.durable.suspension import AGAIN_US, claim_lost
from dueline.jobs import decisions, function_list
from dueline.jobs.decisions import Completion, Decision
from dueline.jobs.function_list import partition_of, values_of
from dueline.jobs.history import row_of_record
from dueline.jobs.parked_functions import END

RECORDS_MAX: Final = 10_000
BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum size of one generation."""

APART_BYTES: Final = 8 * 1024
"""Larger values are written apart, and read when their position is reached."""

_WARNED_AT: Final = 10
_PAGE: Final = 500
_ROUNDS_MAX: Final = 8
_DIGITS: Final = 5

OPENED: Final = "opened"
"""Key of the record that holds the fence of the last claim."""

NOTES: Final = {"wait": "signal", "start": "step", "tries": "step"}
"""What may be known about a position before its record: names of notes, and kinds of calls."""

PATCH: Final = "patch/"
"""Beginning of the keys of patches."""

Path = tuple[int, ...]


class Head(Cells, frozen=True, gc=False, omit_defaults=True):
    """What a record says about its value.

    kind: step, sleep, signal, call, result, gather, gathered, restart, patch, cancel, end or undo.
    name: of what was called.
    state: done, failed, or for the end of a function how it ended. fence: of the claim that wrote
    it. until_us: end of a sleep. codec: of the value. apart: key of the value, if it is not here.
    source: the signal that was taken, or the job that was called. undo: the step is to be undone.
    tries: attempts of a step, or deaths of workers. crashes: those of the row that are counted.
    error: of the last attempt. count: of the calls of a gather, or of a part of one; for a patch,
    of the calls before it. digest: of arguments; empty if they have no stored form, or are
    encrypted. took_us: how long the last attempt of a step ran.
    """

    kind: str
    name: str = ""
    state: str = "done"
    fence: int = 0
    at_us: int = 0
    until_us: int = 0
    codec: int = 0
    apart: str = ""
    source: str = ""
    undo: bool = False
    tries: int = 0
    crashes: int = 0
    error: str = ""
    count: int = 0
    digest: str = ""
    took_us: int = 0


class Entry(NamedTuple):
    """A record of the log, with its value."""

    head: Head
    value: bytes = b""

    def to_bytes(self) -> bytes:
        """Return the stored form: the head as one line of JSON, then the value."""
        return encode(self.head) + b"\n" + self.value


def read_entry(data: bytes) -> Entry:
    """Return a stored record.

    Raises: StoreCorrupt: it cannot be read.
    """
    head, mark, value = data.partition(b"\n")
    if not mark:
        raise StoreCorrupt("The store holds a record of a durable function without its value.")
    return Entry(decode(head, Head), value)


def key_of(path: Path) -> str:
    """Return the key of a position."""
    return "/".join(map(_number, path))


def _number(number: int) -> str:
    return f"{number:0{_DIGITS}}"


def described(generation: int, key: str, head: Head) -> str:
    """Return what the history says of a record.

    Words without blanks: generation, position or "-", kind, state, "undo" if the step is to be
    undone, the job that was called; then the name, which may have blanks.
    """
    path, mark, note = key.removeprefix("undo/").partition("!")
    place = shown(path) if path[:1].isdigit() else "-"
    words = (
        str(generation), f"{place}{mark}{note}", head.kind, head.state or "-",
        "undo" if head.undo else "-", head.source if head.kind == "call" else "-", head.name,
    )  # fmt: skip
    return " ".join(words).rstrip()


def note_of(key: str, name: str) -> str:
    """Return the key of what is known about a position before its record."""
    return f"{key}!{name}"


def is_position(key: str) -> bool:
    """Return whether a key is that of the record of a position."""
    return key[0].isdigit() and "!" not in key


def shown(key: str) -> str:
    """Return a position as people read it, such as "5.2.3"."""
    return ".".join(str(int(number)) for number in key.split("/"))


def has_later(key: str, keys: Iterable[str]) -> bool:
    """Return whether a later position of the branch of a position is among keys (rule D9)."""
    branch, length = key[: -len(_number(0))], len(key)
    return any(
        is_position(other) and other.startswith(branch) and other[:length] > key for other in keys
    )


def number_of(key: str) -> int:
    """Return the position of the outermost branch in a key; 0 for a record without position."""
    return int(key[:_DIGITS]) if key[:_DIGITS].isdigit() else 0


def entry_at(records: Records, job_id: JobId, generation: int, key: str) -> Entry | None:
    """Read one record of a log."""
    record = record_at(records, partition_of(job_id, generation), key)
    return None if record is None else read_entry(record.value)


def whole_entry_at(records: Records, job_id: JobId, generation: int, key: str) -> Entry | None:
    """Read one record of a log, with its value if that lies apart.

    Raises: StoreCorrupt: its value is missing.
    """
    entry = entry_at(records, job_id, generation, key)
    if entry is None:
        return None
    values = values_of(job_id, generation)
    return entry._replace(value=value_apart(records, values, key, entry))


def kept_records(
    records: Records, job_id: JobId, kept: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, Record]]:
    """Yield the records of older generations that a function reads, with these (rule D8).

    kept: as in `DurablePlace`.
    """
    first = 0
    for generation, last in kept:
        for record in records_in(records, partition_of(job_id, generation), page_size=_PAGE):
            if _is_kept(record, first, last):
                yield generation, record
        first = last


def kept_entries(
    records: Records, job_id: JobId, place: DurablePlace
) -> Iterator[tuple[str, Entry]]:
    """Yield the records of older generations that a function reads, by their keys."""
    for _, record in kept_records(records, job_id, place.kept):
        yield record.key, read_entry(record.value)


def entries_of(records: Records, job_id: JobId, place: DurablePlace) -> dict[str, Entry]:
    """Read the records of a function in their order; values that lie apart are not read."""
    own = records_in(records, partition_of(job_id, place.generation), page_size=_PAGE)
    kept = dict(kept_entries(records, job_id, place))
    return kept | {record.key: read_entry(record.value) for record in own if record.key != OPENED}


def _is_kept(record: Record, first: int, last: int) -> bool:
    """Return whether a record belongs to the positions after `first`, up to `last`."""
    number = number_of(record.key)
    if not record.key.startswith(PATCH):
        return first < number <= last
    return first <= read_entry(record.value).head.count < last


def value_apart(records: Records, values: str, key: str, entry: Entry) -> bytes:
    """Return the value of a record. values: the partition of those that lie apart.

    Raises: StoreCorrupt: it is missing.
    """
    if not entry.head.apart:
        return entry.value
    record = record_at(records, values, entry.head.apart)
    if record is None:
        raise StoreCorrupt(f"The value of the record {key} of a durable function is missing.")
    return record.value


class Log:
    """The log of one generation, as one claim reads and extends it.

    Args:
      engine: The engine.
      job: The row of the claim.
      place: Which generation the row has, and which older logs it reads.

    Attributes:
      written: Number of records that this run has written.
      deferred: Records that are written with the next one, by their keys.
      is_listed: The function is in the list of functions.
      last: The last position that has a record.
      read_us: When the records were read.
    """

    def __init__(self, engine: Engine, job: Job, place: DurablePlace) -> None:
        self._engine = engine
        self._job = job
        self._place = place
        self._partition = partition_of(job.id, place.generation)
        self._values = values_of(job.id, place.generation)
        self._entries: dict[str, Entry] = {}
        self.last = 0
        self.read_us = 0
        self._bytes = 0
        self._version = NO_VERSION  # of OPENED
        self._is_kept = False  # in the history
        self.written = 0
        self.deferred: dict[str, Entry] = {}
        self.is_listed = place.generation > 0

    def __len__(self) -> int:
        """Count the records."""
        return len(self._entries)

    @property
    def entries(self) -> Mapping[str, Entry]:
        """The records by their keys, in the order of the keys as far as they were loaded."""
        return self._entries

    def begun(self, key: str) -> Head | None:
        """Return the kind and name of a call that has begun, by its notes; None without them."""
        for name, kind in NOTES.items():
            note = self._entries.get(note_of(key, name))
            if note is not None:
                return Head(kind, note.head.name)
        return None

    def has_after(self, key: str) -> bool:
        """Return whether a later position of the same branch has a record."""
        return has_later(key, self._entries)

    def load(self) -> None:
        """Read all records, and open the log under the fence of this claim (rule D11).

        From then on a late record of an older claim is refused. The first claim of a job opens
        the log with its first record.

        Raises:
          Suspended: A later claim has opened it.
          StoreCorrupt: A record cannot be read.
        """
        settings = self._engine.catalog.settings(living_queue(self._job.lane.queue))
        self._is_kept = settings.tells_all
        for _ in range(_ROUNDS_MAX):
            self.read_us = self._engine.time.latest_us()
            records = list(records_in(self._engine.store, self._partition, page_size=_PAGE))
            there = next((record for record in records if record.key == OPENED), None)
            if self._job.fence == 1:
                if there is not None:  # of a later claim; or this is the first of the job
                    raise claim_lost(AGAIN_US)
                break
            if self._has_opened(there):
                break
        else:
            raise claim_lost(AGAIN_US)
        for key, entry in kept_entries(self._engine.store, self._job.id, self._place):
            self._note(key, entry)
        for record in records:
            if record.key != OPENED:
                self._note(record.key, read_entry(record.value))

    def _has_opened(self, there: Record | None) -> bool:
        """Write the fence of this claim into the log, unless it has changed since it was read.

        Each record that is written changes the version of OPENED.
        """
        if there is None:
            self.expect_listed()
        elif read_entry(there.value).head.fence > self._job.fence:
            raise claim_lost(AGAIN_US)
        put = self._opened(expect=NO_VERSION if there is None else there.version)
        if not self._engine.store.commit(self._partition, (put,)):
            return False
        self._version, self.is_listed = put.version, True
        return True

    def expect_listed(self) -> None:
        """List the function if nothing of it may be stored yet.

        Raises: StoreUnavailable: it is not known to be listed.
        """
        if not self.is_listed:
            function_list.add(self._engine, self._job)
        self.is_listed = True

    def _opened(self, *, expect: bytes) -> Put:
        """Return the write that opens the log, or expects that it is still open."""
        value = Entry(Head(OPENED, fence=self._job.fence)).to_bytes()
        return Put(OPENED, self._engine.ids.token(), value, expect=expect)

    def whole(self, key: str, entry: Entry) -> Entry:
        """Return a record with its value, which lies apart.

        Raises: StoreCorrupt: its value is missing.
        """
        values = values_of(self._job.id, self.generation_of(key))
        return entry._replace(value=value_apart(self._engine.store, values, key, entry))

    def generation_of(self, key: str) -> int:
        """Return the generation whose log has a record."""
        number = number_of(key)
        return self._place.owner(number) if number else self._place.generation

    def write(
        self, key: str, head: Head, value: bytes = b"", *, jobs: Sequence[Job] = ()
    ) -> Call[Entry]:
        """Write the record of a position, once (rule D1); return it.

        Args:
          key: The key.
          head: What the record says.
          value: Its value.
          jobs: Jobs that the record decides to insert (rule D4); they are stored when this returns.

        Raises:
          Suspended: A later claim has opened the log.
          StoreUnavailable: It is not known to be written.
          BadInput: The log is full.
        """
        self._check_size(key, value)
        head = head.changed(fence=self._job.fence, at_us=self._engine.time.latest_us())
        shown = value
        apart: list[Group] = []
        if len(value) > APART_BYTES:
            head, shown = head.changed(apart=f"{key}~{self._job.fence}"), b""
            put = Put(head.apart, self._engine.ids.token(), value)
            apart = [Group(commits=(Commit(self._values, (put,)),))]
        yield from self._put(key, Entry(head, shown), expect=NO_VERSION, jobs=jobs, apart=apart)
        if jobs:
            self._engine.announce(jobs)
        self.written += 1
        return Entry(head, value)

    def insert_again(self, jobs: Sequence[Job]) -> None:
        """Insert the jobs of the last record again: they may not be stored yet (rule D4).

        Raises: Suspended: it is too late. StoreUnavailable: it is not known that they are stored.
        """
        decision = Decision(Commit(self._partition, ()), Group(jobs=jobs))
        age_us = self._engine.time.latest_us() - self.read_us
        match decisions.complete(self._engine.recording_store, decision, age_us=age_us):
            case Completion.HERE:
                self._engine.announce(jobs)
            case Completion.TOO_LATE:  # the next claim reads again whether they have ended
                raise claim_lost()

    def note(self, key: str, head: Head) -> Call[None]:
        """Write what is known about a position, or replace it.

        Raises: Suspended: as `write`.
        """
        head = head.changed(fence=self._job.fence, at_us=self._engine.time.latest_us())
        yield from self._put(key, Entry(head), expect=None)

    def _put(
        self,
        key: str,
        entry: Entry,
        *,
        expect: bytes | None,
        jobs: Sequence[Job] = (),
        apart: Sequence[Group] = (),
    ) -> Call[None]:
        """Write a record while the log is open under this claim.

        Raises: Suspended: a later claim has opened it.
        """
        opened = self._opened(expect=self._version)
        token, before = self._engine.ids.token, list(self.deferred.items())
        also = [Put(each, token(), old.to_bytes(), expect=NO_VERSION) for each, old in before]
        put = Put(key, token(), entry.to_bytes(), expect=expect)
        records = before if expect is None else [*before, (key, entry)]
        listing = () if self.is_listed else (function_list.listing(self._engine, self._job),)
        decision = Decision(
            Commit(self._partition, (opened, *also, put)),
            Group(jobs=jobs, rows=self._rows_of(records)),
            first=(*listing, *apart),
        )
        if not (yield Deciding(self._engine.recording_store, decision)):
            raise claim_lost(AGAIN_US)
        self._version, self.is_listed = opened.version, True
        for record in [*before, (key, entry)]:
            self._note(*record)
        self.deferred.clear()

    def _rows_of(self, records: Iterable[tuple[str, Entry]]) -> list[Row]:
        """Return the rows of the history for records that are written once."""
        if not self._is_kept:
            return []
        return [
            row_of_record(
                self._job, head.at_us, described(self._place.generation, key, head),
                self._engine.ids.token(), took_us=head.took_us,
            )
            for key, (head, _) in records
        ]  # fmt: skip

    def _note(self, key: str, entry: Entry) -> None:
        self._entries[key] = entry
        self._bytes += len(entry.value)
        self.last = max(self.last, number_of(key))

    def _check_size(self, key: str, value: bytes) -> None:
        count, size = len(self._entries) + 1, self._bytes + len(value)
        if (count > RECORDS_MAX or size > BYTES_MAX) and key != END and "undo" not in key:
            raise BadInput(
                f"The durable function {self._job.task} has {count} records and {size} bytes; "
                f"{RECORDS_MAX} and {BYTES_MAX} are allowed.",
                hint="Begin a new log with ctx.restart_with(...) in long loops.",
            )
        if count * _WARNED_AT == RECORDS_MAX or self._bytes < BYTES_MAX // _WARNED_AT <= size:
            log.warning(
                "job=%s task=%s has %d records and %d bytes; %d and %d are allowed: a long loop "
                "should restart with ctx.restart_with(...)", self._job.id.hex(), self._job.task,
                count, size, RECORDS_MAX, BYTES_MAX,
            )  # fmt: skip
