"""Jobs that wait in RQ, moved to the store of an application.

A batch of jobs is taken from RQ and written down beside it in one step, then stored, then
forgotten. What a killed import has written down is stored by the next one, with the same ids.
"""

import io
import json
import pickle
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Final, NamedTuple

from dueline import Dueline
from dueline.api.connect import mask
from dueline.api.task import request_of
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.errors import BadInput, ConfigError, DuelineError, StoreUnavailable
from dueline.core.job import NEW, Job
from dueline.core.lane import Lane
from dueline.core.pagination import parts_of
from dueline.jobs.queue import EnqueueRequest

HELD: Final = "dueline:import:rq"
"""The hash in RQ's database of jobs that were taken and may not be stored yet."""

BATCH: Final = 100
"""Maximum number of jobs that are taken at once."""

RESULT_S: Final = 86_400
"""Minimum retention of results, in seconds: they show that a job was stored and has ended."""

HELD_US_MAX: Final = DAY_US - 3600 * SECOND_US
"""Time for which a job that was taken can be stored again, in microseconds."""

_TOO_OLD: Final = (
    "An import took it from RQ a day ago, and it may have run since. See `dueline jobs show {}`,"
    f" and delete its field of {HELD}."
)
_PAGE: Final = 1000
_TIMEOUT_S: Final = b"180"  # RQ's default
_PLAIN: Final = {
    ("builtins", "set"), ("builtins", "frozenset"), ("decimal", "Decimal"), ("uuid", "UUID"),
    *(("datetime", name) for name in ("datetime", "date", "time", "timedelta", "timezone")),
}  # fmt: skip
_ELSEWHERE: Final = {
    b"success_callback_name": "callbacks",
    b"failure_callback_name": "callbacks",
    b"stopped_callback_name": "callbacks",
    b"webhooks": "webhooks",
    b"repeats_left": "repetitions",
    b"rate_limit_key": "a rate limit",
}
_TAKE: Final = """
local taken = {}
for at = 2, #ARGV, 2 do
  local removed
  if ARGV[1] == 'waiting' then removed = redis.call('LREM', KEYS[1], 1, ARGV[at])
  else removed = redis.call('ZREM', KEYS[1], ARGV[at]) end
  if removed > 0 then
    redis.call('HSET', KEYS[2], ARGV[at], ARGV[at + 1])
    taken[#taken + 1] = ARGV[at]
  end
end
return taken
"""


class ForeignJob(NamedTuple):
    """A job of RQ, and what becomes of it.

    Attributes:
      id, queue, task: As in RQ; the task is the new name if there is one.
      state: waiting, scheduled or deferred.
      verdict: maps, moved, refused, left, or unknown.
      finding: Why it is refused, or what is left out.
      request: The call to store.
    """

    id: str
    queue: str
    state: str
    task: str = ""
    verdict: str = "maps"
    finding: str = ""
    request: EnqueueRequest | None = None


class RqJobs:
    """The jobs of an RQ.

    Args:
      url: The URL of its Redis.
      names: Old and new names of tasks.
      app: Where the tasks are; None to check no arguments.
    """

    def __init__(self, url: str, names: Mapping[str, str], app: Dueline | None) -> None:
        from redis import Redis, RedisError  # noqa: PLC0415  (an extra)

        self._redis: Any = Redis.from_url(url)
        self._url = mask(url)
        self._error = RedisError
        self._names = names
        self._app = app

    def found(self, *, apply: bool) -> Iterator[ForeignJob]:
        """Yield the jobs, in the order of their queues; move those that map.

        Raises:
          StoreUnavailable: The Redis does not answer. Repeat the call.
        """
        try:
            if apply and self._app is not None:
                yield from self._moved(self._app)
            else:
                for _, batch in self._batches():
                    yield from batch
        except self._error as error:
            raise StoreUnavailable(
                f"The Redis of RQ, {self._url}, does not answer: {error}",
                hint="Repeat the command.",
            ) from error

    def _moved(self, app: Dueline) -> Iterator[ForeignJob]:
        yield from self._store_held(app)
        for key, batch in self._batches():
            words = [
                word for job in batch if job.request for word in (job.id, _packed(job.request, app))
            ]
            taken = self._redis.eval(_TAKE, 2, key, HELD, batch[0].state, *words) if words else ()
            yield from self._store_held(app)
            ids = {job_id.decode() for job_id in taken}
            for job in batch:
                if job.request is None:
                    yield job
                elif job.id not in ids:
                    yield job._replace(verdict="left", finding="RQ has started it meanwhile.")

    def _store_held(self, app: Dueline) -> Iterator[ForeignJob]:
        """Store what was taken, and forget it."""
        held = self._redis.hgetall(HELD)
        now_us = app.store.clock_us()
        rows = {job_id.decode(): _unpacked(text, app) for job_id, text in held.items()}
        done = {
            job_id: row for job_id, row in rows.items() if now_us - row.enqueued_us < HELD_US_MAX
        }
        if done:
            app.queues.enqueue_again(list(done.values()))
            pipeline = self._redis.pipeline()  # a transaction
            pipeline.unlink(*(f"rq:job:{job_id}" for job_id in done)).hdel(HELD, *done).execute()
        for job_id, row in rows.items():
            verdict, finding = (
                ("moved", "") if job_id in done else ("unknown", _TOO_OLD.format(row.id.hex()))
            )
            yield ForeignJob(job_id, row.lane.queue, "taken", row.task, verdict, finding)

    def _batches(self) -> Iterator[tuple[str, list[ForeignJob]]]:
        """Yield jobs with the key that holds their ids."""
        for full in sorted(self._redis.smembers("rq:queues")):
            queue = full.decode().removeprefix("rq:queue:")
            key = f"rq:queue:{queue}"
            for ids in parts_of(self._waiting(key), BATCH):
                yield key, self._read(queue, "waiting", [(job_id, None) for job_id in ids])
            key = f"rq:scheduled:{queue}"
            for pairs in parts_of(self._redis.zrange(key, 0, -1, withscores=True), BATCH):
                yield key, self._read(queue, "scheduled", pairs)
            key = f"rq:deferred:{queue}"
            for ids in parts_of(self._redis.zrange(key, 0, -1), BATCH):
                finding = "It waits for another job. Let RQ's workers run both."
                yield (
                    key,
                    [
                        ForeignJob(job_id.decode(), queue, "deferred", "", "refused", finding)
                        for job_id in ids
                    ],
                )

    def _waiting(self, key: str) -> Sequence[bytes]:
        """Return the ids of a list, read from its end: workers take from its beginning."""
        ids: dict[bytes, None] = {}
        for last in range(-1, -self._redis.llen(key) - 1, -_PAGE):
            ids |= dict.fromkeys(reversed(self._redis.lrange(key, last - _PAGE + 1, last)))
        return list(reversed(ids))

    def _read(
        self, queue: str, state: str, places: Sequence[tuple[bytes, float | None]]
    ) -> list[ForeignJob]:
        pipeline = self._redis.pipeline(transaction=False)
        for job_id, _ in places:
            key = f"rq:job:{job_id.decode()}"
            pipeline.hgetall(key).pttl(key).exists(f"{key}:dependents")
        answers = iter(pipeline.execute())
        return [
            self._planned(ForeignJob(job_id.decode(), queue, state), at_s, *facts)
            for (job_id, at_s), facts in zip(
                places, zip(answers, answers, answers, strict=True), strict=True
            )
        ]

    def _planned(
        self, job: ForeignJob, at_s: float | None, cells: Mapping[bytes, bytes], left_ms: int,
        has_dependents: int,
    ) -> ForeignJob:  # fmt: skip
        """Return a job with the row that it becomes, or with the reason why not."""
        named = cells.get(b"description", b"").decode(errors="replace").partition("(")[0]
        job = job._replace(task=self._names.get(named, named))  # also if its data cannot be read
        try:
            if b"data" not in cells:
                raise BadInput("It has expired in RQ.")
            name, instance, args, kwargs = _call_of(cells[b"data"])
            job = job._replace(task=self._names.get(name, name))
            if instance is not None:
                raise BadInput("It calls a method of an object.")
            if has_dependents:
                raise BadInput("Other jobs wait for it. Let RQ's workers run it.")
            for cell, what in _ELSEWHERE.items():
                if cells.get(cell) not in (None, b""):
                    raise BadInput(f"It has {what}. Let RQ's workers run it.")
            if self._app is None:
                return job
            at = _time_of(cells, at_s)
            task = self._app.task_named(job.task)
            if task.has_unique_key:
                raise BadInput("Its task has a unique key. Let RQ's workers run it.")
            keep = max(RESULT_S, int(cells.get(b"result_ttl") or 0))
            expires = left_ms / 1000 if left_ms > 0 else None
            using = task.using(queue=job.queue, due=at, keep=keep, expires=expires)
            request = request_of(self._app, using.call(*args, **kwargs))
        except DuelineError as error:
            return job._replace(verdict="refused", finding=str(error))
        return job._replace(request=request, finding=", ".join(_left_out(cells)))


def _left_out(cells: Mapping[bytes, bytes]) -> Iterator[str]:
    if cells.get(b"timeout", _TIMEOUT_S) != _TIMEOUT_S:
        yield "@app.task(timeout=) of the task"
    if cells.get(b"retries_left"):
        yield "@app.task(retry=) of the task"
    if cells.get(b"meta"):
        yield "without its meta"


def _time_of(cells: Mapping[bytes, bytes], at_s: float | None) -> datetime:
    """Return when a job is due: its scheduled time, or when it was enqueued."""
    if at_s is not None:
        return datetime.fromtimestamp(at_s, UTC)
    text = (cells.get(b"enqueued_at") or cells[b"created_at"]).decode()
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


class _Values(pickle.Unpickler):
    """Makes plain values only: bytes of a store choose no code to run."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        if (module, name) not in _PLAIN:
            raise BadInput(f"Its arguments hold a {module}.{name}, which is no plain value.")
        return getattr(import_module(module), name)


def _call_of(data: bytes) -> tuple[str, object, Sequence[Any], Mapping[str, Any]]:
    """Return function, object, arguments and named arguments of a job.

    Raises:
      BadInput: They cannot be read.
    """
    try:
        with suppress(zlib.error):  # older versions do not compress
            data = zlib.decompress(data)
        call = json.loads(data) if data[:1] == b"[" else _Values(io.BytesIO(data)).load()
        name, instance, args, kwargs = call
        return str(name), instance, list(args), dict(kwargs)
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"Its arguments cannot be read: {error}.") from error


def _packed(request: EnqueueRequest, app: Dueline) -> str:
    """Return the row of a call and the store that it is for."""
    (row,) = app.queues.rows(request)
    cells = [cell.hex() if isinstance(cell, bytes) else cell for cell in row[: len(NEW)]]
    return json.dumps({"to": mask(app.url), "row": cells})


def _unpacked(text: bytes, app: Dueline) -> Job:
    """Return the row of a job that was taken.

    Raises:
      ConfigError: It was taken for another store.
    """
    held = json.loads(text)
    if held["to"] != mask(app.url):
        raise ConfigError(
            f"An import into {held['to']} was interrupted.", hint="Finish it with this store first."
        )
    lane, *rest = held["row"]
    row = dict(zip(NEW, (Lane(*lane), *rest), strict=True))
    row |= {name: bytes.fromhex(row[name]) for name in ("id", "body", "opts")}
    return Job(**row)
