"""The lines of an export: JSON objects whose member `kind` says what each is.

Format 1. A line leaves out members with their defaults. Members of bytes are a string if the bytes
are UTF-8, and otherwise an object with the member `base64`. What belongs to one store only is left
out: shards and buckets of jobs, tokens of claims, and records about processes.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Annotated, Final

import msgspec

from dueline.core.attempt import Outcome
from dueline.core.codec import decode, encode
from dueline.core.errors import BadInput
from dueline.core.job import UNCLAIMED_TOKEN, Job, JobId
from dueline.core.lane import Lane, bucket_of, living_queue
from dueline.core.queue_settings import QueueSettings, shard_of
from dueline.core.store import SETTINGS_PARTITION, Put, Record, Row
from dueline.jobs import results

FORMAT: Final = 1
"""Version of the format; a reader refuses a later one."""

_RESULTS: Final = "results/"
_KEYS: Final = "unique/"
_SUM_BITS: Final = 256


class Binary(msgspec.Struct, frozen=True, gc=False):
    """Bytes that are not UTF-8; in JSON, in base64."""

    base64: bytes


Data = str | Binary


class _Line(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True,
    tag_field="kind",
):  # fmt: skip
    """A line of an export."""


class JobLine(_Line, frozen=True, gc=False, tag="job"):
    """A job with a row: it waits, is retried, was claimed by a worker that died, or is dead.

    Attributes:
      id: 32 hexadecimal digits.
      queue: Its queue; that of a dead-letter job ends with `!dead`.
      tenant: Its tenant, and the limits and the task of its lane.
      Others: as in `Job`.
    """

    id: str
    queue: str
    at_us: int
    due_us: int
    enqueued_us: int
    task: str
    codec: int = 0
    body: Data = ""
    opts: Data = ""
    tenant: str = ""
    priority: int = 0
    hop: int = 0
    fence: int = 0
    worker: str = ""
    claimed_us: int = 0
    errors: int = 0
    crashes: int = 0
    alone: bool = False
    state: int = 0
    error: str = ""


class RecordLine(_Line, frozen=True, gc=False, tag="record"):
    """A record: settings, limits, schedules, results, checkpoints, logs of functions and others.

    Attributes:
      partition: Kind of the record and place within it.
      key: Its key in the partition.
      version: Its version, in hexadecimal digits.
      value: Its content, mostly JSON.
      expires_us: When it expires; None for never.
    """

    partition: str
    key: str
    version: str
    value: Data
    expires_us: int | None = None


class EventLine(_Line, frozen=True, gc=False, tag="event"):
    """A row of a stream, or of a queue's history, whose stream is named `QUEUE!history`."""

    stream: str
    shard: Annotated[int, msgspec.Meta(ge=0)]
    at_us: int
    id: str
    body: Data


class WatermarkLine(_Line, frozen=True, gc=False, tag="watermark"):
    """The time up to which a shard of a stream is complete."""

    stream: str
    shard: Annotated[int, msgspec.Meta(ge=0)]
    at_us: int


Line = JobLine | RecordLine | EventLine | WatermarkLine

encode_line: Final = msgspec.json.Encoder().encode
_decode_line: Final[Callable[[bytes], Line]] = msgspec.json.Decoder(Line).decode


def decode_line(data: bytes, place: str) -> Line:
    """Read a line; place: where it is, for the message.

    Raises: BadInput: it cannot be read.
    """
    try:
        return _decode_line(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{place} is not a line of an export: {error}.",
            hint="Was it written by a newer version, or changed?",
        ) from error


def _data(content: bytes) -> Data:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return Binary(content)


def _bytes(data: Data) -> bytes:
    return data.encode() if isinstance(data, str) else data.base64


# Jobs


def line_of_job(job: Job) -> JobLine:
    """Return the line of a job."""
    lane = job.lane
    return JobLine(
        job.id.hex(), lane.queue, job.at_us, job.due_us, job.enqueued_us, job.task, job.codec,
        _data(job.body), _data(job.opts), lane.tenant, lane.priority, job.hop, job.fence,
        job.worker, job.claimed_us, job.errors, job.crashes, job.alone, int(job.state), job.error,
    )  # fmt: skip


def job_of(line: JobLine, settings: QueueSettings, *, not_before_us: int) -> Job:
    """Return the row to insert for a line.

    Args:
      line: The line.
      settings: Of its queue.
      not_before_us: The first position that a row may have.
    """
    job_id = JobId(bytes.fromhex(line.id))
    at_us = max(line.at_us, not_before_us)
    lane = Lane(
        line.queue, shard_of(job_id, settings.shards), bucket_of(at_us, settings.width_us),
        line.priority, line.tenant,
    )  # fmt: skip
    return Job(
        lane, at_us, job_id, line.hop + 1, line.due_us, line.enqueued_us, line.task, line.codec,
        _bytes(line.body), _bytes(line.opts), at_us, line.fence, UNCLAIMED_TOKEN, line.worker,
        line.claimed_us, line.errors, line.crashes, line.alone, line.state, b"", line.error,
    )  # fmt: skip


def queue_of(line: JobLine) -> str:
    """Return the queue whose settings apply to a job."""
    return living_queue(line.queue)


# Records and rows


def line_of_record(partition: str, put: Put) -> RecordLine:
    """Return the line of a record."""
    return RecordLine(partition, put.key, put.version.hex(), _data(put.value), put.expires_us)


def put_of(line: RecordLine) -> Put:
    """Return the write that stores a record."""
    return Put(line.key, bytes.fromhex(line.version), _bytes(line.value),
               expires_us=line.expires_us)  # fmt: skip


def line_of_row(row: Row) -> EventLine:
    """Return the line of a row of a stream."""
    return EventLine(row.stream, row.shard, row.at_us, row.id.hex(), _data(row.body))


def row_of(line: EventLine) -> Row:
    """Return the row of a stream."""
    return Row(line.stream, line.shard, line.at_us, bytes.fromhex(line.id), _bytes(line.body))


def is_result(line: RecordLine) -> bool:
    """Return whether a record holds results of jobs."""
    return line.partition.startswith(_RESULTS)


def results_in(line: RecordLine) -> list[tuple[str, Outcome]]:
    """Return the results in a record, with the digits of their jobs' ids."""
    put = put_of(line)
    return results.outcomes_in(Record(put.key, put.version, put.value))


# The digest


class Digest:
    """Counts lines of each kind, and sums what is the same in every store (rule X10).

    The order of lines does not matter, nor how results share records. It detects what is missing,
    doubled or changed; it is no signature.

    Args:
      until_us: Records that expire before this time are left out; None for none.
      has_results: Count the results of jobs, too.

    Attributes:
      counts: The number of lines of each kind.
    """

    def __init__(self, until_us: int | None = None, *, has_results: bool = True) -> None:
        self.counts = Counter[str]()
        self._until_us = until_us
        self._has_results = has_results
        self._sum = 0

    def add(self, line: Line) -> None:
        """Count a line."""
        if isinstance(line, RecordLine):
            if not self.has(line):
                return
            if is_result(line):
                for result in results_in(line) if self._has_results else ():
                    self._note("result", encode(result))
                return
        same = _same(line)
        if same is not None:
            self._note(_kind(same), encode_line(same))

    def has(self, line: RecordLine) -> bool:
        """Return whether a record expires too late to be left out."""
        is_kept = line.expires_us is None or self._until_us is None
        return is_kept or line.expires_us >= self._until_us  # type: ignore[operator]

    def _note(self, kind: str, content: bytes) -> None:
        self.counts[kind] += 1
        self._sum += int.from_bytes(sha256(content).digest())

    def hex(self) -> str:
        """Return the digest, 64 hexadecimal digits."""
        return f"{self._sum % 2**_SUM_BITS:064x}"


def _kind(line: Line) -> str:
    if isinstance(line, RecordLine):
        return line.partition.partition("/")[0]
    return str(type(line).__struct_config__.tag)


def _same(line: Line) -> Line | None:
    """Return what of a line is the same after an import; None for nothing."""
    change = msgspec.structs.replace
    if isinstance(line, JobLine):
        return change(line, hop=0)
    if isinstance(line, WatermarkLine):
        return None
    if not isinstance(line, RecordLine):
        return line
    if line.partition.startswith(_KEYS):  # names the row of the job
        return change(line, value="")
    if line.partition == SETTINGS_PARTITION:
        settings = replace(decode(_bytes(line.value), QueueSettings), width_us=0, shards_read=0)
        return change(line, version="", value=repr(settings))
    return line
