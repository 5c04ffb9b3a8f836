"""Large arguments and results that are kept outside the store, as blobs.

The store keeps a reference: the name of the blob, its size and its digest. A body that is one has
the codec `BY_ADDRESS`; a result that is one is a JSON object whose first member is `$blob`.

A blob is written before the row that names it, and belongs to one job. Its name has the hour of the
call or claim, the job and a digest, so a repeat writes the same blob, and another attempt another
one. The name of a result also has the workflow, or the function that called the job, which may need
it longer than the job is known. Maintenance removes the blobs of jobs that are gone
(`monitor.blob_removal`).
"""

import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Annotated, Final, Literal, Protocol

import msgspec

from dueline.core.call_options import call_of, flow_of, is_step, read_options
from dueline.core.clock import SECOND_US
from dueline.core.codec import DAMAGE, JSON, PAYLOAD_BYTES_MAX, RESULT_BYTES_MAX, Form, encode
from dueline.core.constraints import integer
from dueline.core.errors import BadInput, BlobLost, StoreUnavailable
from dueline.core.ids import Ids
from dueline.core.job import Job, JobId
from dueline.core.pagination import records_in
from dueline.core.store import NO_VERSION, Put, Store
from dueline.core.user_code import text_of

BY_ADDRESS: Final = 4
"""The codec of a body that is a reference."""

BLOB_BYTES_MAX: Final = 1024**3

ABOVE: Final = 64 * 1024
"""Default size in bytes above which arguments and results are blobs."""

LargeAbove = Annotated[int, integer(0, RESULT_BYTES_MAX)]
"""A size in bytes above which values are blobs."""

HOUR_US: Final = 3600 * SECOND_US

PARTITION: Final = "blobs"
"""Partition of records whose keys are the namespaces of a store's blobs; `dueline move` copies it.
"""

RESULT_OF: Final = "a result of "
"""Before the task in what a custom codec authenticates: no task has a name with a space."""

_MARK: Final = '{"$blob":'
_MARK_BYTES: Final = _MARK.encode()
_LAST_PART: Final = r"([0-9a-f]{32})-(?:arguments|result|value)-[0-9a-f]{16}(?:-([0-9a-f]{32}))?"
_LAST: Final = re.compile(_LAST_PART)
_NAME: Final = re.compile(rf"[0-9a-f]{{16}}/[0-9]{{7}}/{_LAST_PART}")


class BlobPlace(Protocol):
    """A folder, or what is like one, that holds blobs by name: `namespace/hour/owner-kind-digest`.

    Its methods raise OSError if it cannot be reached. Threads may share it.
    """

    def address(self, name: str) -> str:
        """Return the address of a blob, for people."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Write a blob durably, as a whole or not at all; a repeat changes nothing."""
        ...

    def read(self, name: str) -> bytes:
        """Read a blob; raise FileNotFoundError if it is gone."""
        ...

    def remove(self, name: str) -> None:
        """Remove a blob, or the folder of an hour if it is empty; what is gone is no error."""
        ...

    def names(self, folder: str) -> Sequence[str]:
        """Return the last parts of the names in a folder, sorted; none if there is no folder."""
        ...


class Reference(msgspec.Struct, frozen=True, rename={"name": "$blob"}):
    """What the store keeps of a blob.

    Attributes:
      name: Name of the blob.
      size: Number of its bytes.
      sha256: Digest of its bytes, in hexadecimal digits.
      codec: Codec of its content.
      task: Task that wrote it.
    """

    name: str
    size: int
    sha256: str
    codec: int
    task: str


def owners_in(text: str) -> Sequence[JobId]:
    """Return the job, and the workflow or function, in the last part of a name; () for others."""
    match = _LAST.fullmatch(text)
    return () if match is None else [JobId(bytes.fromhex(each)) for each in match.groups() if each]


def needs_result(job: Job) -> JobId | None:
    """Return the id of the workflow, or of the function, that may need the result of a job."""
    if (place := call_of(job)) is not None:
        return JobId(place.parent)
    step = read_options(job.opts).step if is_step(job) else None
    return None if step is None else flow_of(job.id, step.number)


Opened = Callable[[int, bytes, str, int], tuple[Form, bytes]]
"""Undoes a codec: takes its number, the bytes, the task and the maximum size."""


class Blobs:
    """Where an application keeps large arguments and results.

    Args:
      place: The folder.
      above: Returns the size in bytes above which values of a task are blobs.
      opened: Undoes codecs of arguments.
      connect: Opens the store, which sets the namespace; for processes that store nothing else.

    Attributes:
      namespace: Of the store that is open; empty before.
    """

    def __init__(
        self,
        place: BlobPlace,
        *,
        above: Callable[[str], int],
        opened: Opened,
        connect: Callable[[], object],
    ) -> None:
        self.place = place
        self.namespace = ""
        self._above = above
        self._opened = opened
        self._connect = connect

    def placed(self, jobs: list[Job]) -> list[Job]:
        """Write the blobs of new jobs with large arguments; return the rows to insert.

        Raises:
          StoreUnavailable: A blob was not written.
          BlobLost: Arguments that are copied from another job are gone.
        """
        if not any(self._is_apart(job) for job in jobs):
            return jobs
        return [self._placed(job) if self._is_apart(job) else job for job in jobs]

    def _is_apart(self, job: Job) -> bool:
        most = min(self._above(job.task), PAYLOAD_BYTES_MAX)
        return job.codec == BY_ADDRESS or len(job.body) > most

    def _placed(self, job: Job) -> Job:
        codec, body = job.codec, job.body
        if codec == BY_ADDRESS:
            reference = reference_in(body)
            if f"/{job.id.hex()}-" in reference.name:
                return job
            codec, body = reference.codec, self.fetch(reference)
        reference = self._write(body, codec, "arguments", job)
        return job._replace(codec=BY_ADDRESS, body=encode(reference))

    def kept(self, data: bytes, codec: int, kind: Literal["result", "value"], job: Job) -> bytes:
        """Write a result or value of a claimed job as a blob; return the reference.

        Raises:
          StoreUnavailable: It was not written.
        """
        return encode(self._write(data, codec, kind, job))

    def copied(self, data: bytes, job: Job) -> bytes:
        """Copy the blob of a value for another job; return the reference.

        Raises:
          BlobLost, StoreUnavailable: As `fetch` and `kept`.
        """
        codec, value = self.body(data)
        return self.kept(value, codec, "value", job)

    def is_large(self, data: bytes, task: str) -> bool:
        """Return whether a result or value of a task is kept as a blob."""
        return len(data) > min(self._above(task), RESULT_BYTES_MAX)

    def _write(self, data: bytes, codec: int, kind: str, job: Job) -> Reference:
        if not self.namespace:
            self._connect()
        digest = sha256(data).hexdigest()
        hour, needing = job.enqueued_us // HOUR_US, None
        if kind != "arguments":
            hour, needing = (job.claimed_us or job.enqueued_us) // HOUR_US, needs_result(job)
        name = f"{self.namespace}/{hour:07}/{job.id.hex()}-{kind}-{digest[:16]}"
        name += "" if needing is None else f"-{needing.hex()}"
        try:
            self.place.write(name, data)
        except OSError as error:
            raise StoreUnavailable(
                f"The blob of {job.task} cannot be written: {self.place.address(name)} "
                f"({text_of(error)}).",
                hint="Nothing names it. Check `blobs` of the application, and its disk.",
            ) from error
        return Reference(name, len(data), digest, codec, job.task)

    def fetch(self, reference: Reference) -> bytes:
        """Read a blob, and check its digest.

        Raises:
          BlobLost: It is gone or damaged.
          StoreUnavailable: The folder cannot be read now.
        """
        address = self.place.address(reference.name)
        what = f"The blob of {reference.task} at {address}, {reference.size} bytes with the sha256 "
        what += reference.sha256
        try:
            data = self.place.read(reference.name)
        except FileNotFoundError as error:
            raise BlobLost(
                f"{what}, is gone.",
                hint="Was it removed, or does this process use another folder as `blobs`?",
            ) from error
        except OSError as error:
            raise StoreUnavailable(f"{what}, cannot be read: {text_of(error)}.") from error
        if sha256(data).hexdigest() != reference.sha256:
            raise BlobLost(
                f"{what}, is damaged: it has {len(data)} bytes and another digest.",
                hint="Restore the file from a backup, then retry the job.",
            )
        return data

    def body(self, body: bytes) -> tuple[int, bytes]:
        """Return the codec and the bytes of arguments that are a blob.

        Raises: As `fetch`.
        """
        reference = reference_in(body)
        return reference.codec, self.fetch(reference)

    def whole(self, text: str) -> str:
        """Return a result as JSON, from the blob if it is one.

        Raises: As `fetch`; exceptions of a custom codec propagate.
        """
        if not text.startswith(_MARK):
            return text
        reference = reference_in(text.encode())
        codec, data = reference.codec, self.fetch(reference)
        if codec != JSON:
            _, data = self._opened(codec, data, RESULT_OF + reference.task, BLOB_BYTES_MAX)
        return data.decode()


_Parts = list[msgspec.Raw]


def reference_in(data: bytes) -> Reference:
    """Read a reference.

    Raises: BadInput: it is damaged.
    """
    try:
        reference = msgspec.json.decode(data, type=Reference)
    except DAMAGE as error:
        raise BadInput(f"A reference to a blob is damaged: {error}.") from error
    if _NAME.fullmatch(reference.name) is None:  # it may come from another program
        raise BadInput(f"{reference.name!r:.120} is no name of a blob.")
    return reference


def whole(blobs: Blobs | None, text: str) -> str:
    """Return a result as JSON, from its blob if it is one.

    Raises:
      BadInput: It is a blob, and the application names no folder of blobs.
      BlobLost, StoreUnavailable: As `Blobs.fetch`.
    """
    if not text.startswith(_MARK):
        return text
    return expected(blobs, text.encode()).whole(text)


def is_reference(value: str) -> bool:
    """Return whether a result is a reference to a blob."""
    return value.startswith(_MARK)


def whole_given(blobs: Blobs | None, given: bytes) -> bytes:
    """Return the first arguments of a step, a JSON array, with the results that are blobs.

    Raises: As `whole`.
    """
    if _MARK_BYTES not in given:
        return given

    def inside(value: msgspec.Raw) -> object:
        data = bytes(value)
        if data.startswith(b"["):  # the results of a group
            return [inside(member) for member in msgspec.json.decode(data, type=_Parts)]
        return msgspec.Raw(whole(blobs, data.decode()).encode())

    return encode([inside(value) for value in msgspec.json.decode(given, type=_Parts)])


def expected(blobs: Blobs | None, body: bytes) -> Blobs:
    """Return the blobs of an application.

    Raises: BadInput: it has none, and needs the one of a reference.
    """
    if blobs is None:
        raise BadInput(
            f"The blob {reference_in(body).name} is in a folder that this process does not know.",
            hint='Name the folder: Dueline(..., blobs="file:///...").',
        )
    return blobs


def namespaces_of(store: Store) -> list[str]:
    """Return the namespaces of a store's blobs; those of stores that moved here are among them."""
    return [record.key for record in records_in(store, PARTITION)]


def own_namespace(store: Store, ids: Ids) -> str:
    """Return the namespace for new blobs, and create it before the first one.

    Two processes that do so at the same moment create two; both are used.
    """
    known = namespaces_of(store)
    if not known:
        token = ids.token()
        known = [token.hex()[:16]]
        store.commit(PARTITION, (Put(known[0], token, b"", NO_VERSION),))
    return known[0]
