"""The settings of queues and streams, with their limits."""

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, NamedTuple

from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.constraints import (
    bad_value,
    check_constraints,
    check_value,
    constraint,
    constraints_of,
    integer,
)
from dueline.core.errors import BadInput
from dueline.core.wakeup import FALLBACK_US_MAX

DEFAULT_QUEUE = "default"
SHARDS_MAX = 1024
LEASE_US_MIN = SECOND_US // 10
LEASE_US_MAX = DAY_US
KEEP_US_MAX = 3660 * DAY_US
AGING_US_MIN = 1_000
WIDTH_US_MAX = 7 * DAY_US
POLL_US_MIN = SECOND_US // 100
PAUSED_MAX = 1_000
WEIGHT_MAX = 1_000
QUOTAS_MAX = 1_000
QUOTA_MAX = 1_000_000
QUOTA_PER_US_MIN = SECOND_US // 100

History = Literal["attempts", "all", "arguments", "off"]
Deliver = Literal["at_least_once", "at_most_once"]
DeadInOrder = Literal["block", "skip"]

_Shards = Annotated[int, integer(1, SHARDS_MAX, "Use 1, or as many as claim in parallel.")]
_Paused = Annotated[
    tuple[str, ...],
    constraint(
        f"at most {PAUSED_MAX} names", "Pause the queue, or resume some.", max_length=PAUSED_MAX
    ),
]
_PERIOD = constraint(
    "a duration from 10 ms to one day", "Use 10 ms to one day.", ge=QUOTA_PER_US_MIN, le=DAY_US
)
_STREAM_KEEP = constraint(
    "a duration of more than 0 s and at most ten years", "Use None to keep all.",
    gt=0, le=KEEP_US_MAX,
)  # fmt: skip

_STREAM_BYTES = integer(1, 2**62)

_NO_HISTORY = 'Use history="off" to record none.'
_NO_WAIT = "Use 0 for dead-letter jobs at once."
_UNTIL_PURGED = "Use 0 to keep dead-letter jobs until they are purged."

_TELL_ALL = frozenset({"all", "arguments"})
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")


def _up_to_ten_years(text: str, hint: str, *, ge: int = 0, name: str | None = None) -> Any:  # noqa: ANN401
    return constraint(text, hint, name=name, ge=ge, le=KEEP_US_MAX)


KeepUs = Annotated[
    int, _up_to_ten_years("a duration of at most ten years", "Use 0 to keep no results.")
]
"""How long results are kept: of a queue, or of one call."""


class Quota(NamedTuple):
    """How many jobs a queue accepts: in total, of one tenant, or of each other tenant.

    depth: maximum number of waiting jobs; 0: no maximum.
    rate: maximum number of new jobs in a period of `per_us`; 0: no maximum.
    """

    scope: Literal["queue", "tenant", "each"] = "queue"
    tenant: str = ""
    depth: Annotated[int, integer(0, QUOTA_MAX)] = 0
    rate: Annotated[int, integer(0, QUOTA_MAX)] = 0
    per_us: int = 0


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The settings of a queue, stored so that every client reads the same.

    shards: hash slices that new jobs spread over.
    shards_read: slices that workers read, including those left over from a larger number.
    width_us: width of a bucket; fixed when the queue is created.
    lease_us: duration of a claim without a heartbeat.
    history: which events the history records; see `tells_all`, `keeps_arguments`.
    keep_us: how long results are kept; 0 for not at all.
    aging_us: waiting time that raises the priority by one step; 0 for never.
    is_paused: workers claim no job. paused_tenants, paused_tasks: workers claim none of these.
    tripped_tasks: those of the paused tasks that paused themselves.
    deliver: whether a job whose worker died in its handler runs again or is lost.
    history_us: minimum time that history is kept.
    dead_us: minimum time that dead-letter jobs are kept; 0: until they are purged.
    version_wait_us: how long a job waits for a worker that can take its arguments.
    weights: turns of tenants in the round-robin; tenants that are not listed have one.
    quotas: how many jobs are accepted.
    shards_range: minimum and maximum number of shards, if the monitor chooses it by load.
    poll_us: maximum time between polls of an idle worker; 0: as the store needs.
    dead_in_order: what a dead job does to the others of its order key, if its call says nothing.
    """

    shards: _Shards = 1
    shards_read: int = 1
    width_us: Annotated[
        int,
        constraint(
            "a duration from 1 s to seven days",
            "Use more where few jobs are due at a time.",
            name="bucket",
            ge=SECOND_US,
            le=WIDTH_US_MAX,
        ),
    ] = DAY_US
    lease_us: Annotated[
        int,
        constraint(
            "a duration from 0.1 s to one day",
            "Use 0.1 s to one day; workers extend the lease of a running job.",
            ge=LEASE_US_MIN,
            le=LEASE_US_MAX,
        ),
    ] = 30 * SECOND_US
    history: History = "attempts"
    keep_us: KeepUs = DAY_US
    aging_us: Annotated[
        int, _up_to_ten_years("0, or a duration from 1 ms to ten years", "Use 0 for no aging.")
    ] = 0
    is_paused: bool = False
    deliver: Deliver = "at_least_once"
    history_us: Annotated[
        int,
        _up_to_ten_years(
            "a duration from 1 s to ten years", _NO_HISTORY, ge=SECOND_US, name="history_keep"
        ),
    ] = 7 * DAY_US
    dead_us: Annotated[
        int,
        _up_to_ten_years("0, or a duration from 1 s to ten years", _UNTIL_PURGED, name="dead_keep"),
    ] = 0
    version_wait_us: Annotated[
        int, _up_to_ten_years("0, or a duration of at most ten years", _NO_WAIT)
    ] = 3600 * SECOND_US
    paused_tenants: _Paused = ()
    paused_tasks: _Paused = ()
    tripped_tasks: _Paused = ()
    weights: Annotated[
        tuple[tuple[str, Annotated[int, integer(1, WEIGHT_MAX)]], ...],
        constraint(
            f"at most {PAUSED_MAX} tenants, each with an integer from 1 to {WEIGHT_MAX}",
            "Omit tenants of weight 1.",
            max_length=PAUSED_MAX,
        ),
    ] = ()
    quotas: Annotated[
        tuple[Quota, ...],
        constraint(
            f"at most {QUOTAS_MAX} quotas", "Set one for each tenant.", max_length=QUOTAS_MAX
        ),
    ] = ()
    shards_range: tuple[int, ...] = ()
    poll_us: Annotated[
        int,
        constraint(
            "0, or a duration from 10 ms to 24 s",
            "Use 0 for what the store needs.",
            ge=0,
            le=FALLBACK_US_MAX,
        ),
    ] = 0
    dead_in_order: DeadInOrder = "block"

    @property
    def has_leftovers(self) -> bool:
        """Whether workers read shards that get no new jobs."""
        return self.shards_read > self.shards

    @property
    def is_once(self) -> bool:
        """Whether a handler is never called twice for one job."""
        return self.deliver == "at_most_once"

    @property
    def tells_all(self) -> bool:
        """Whether the history records new jobs and changes too, so that it can be audited."""
        return self.history in _TELL_ALL

    @property
    def keeps_arguments(self) -> bool:
        """Whether the history records the arguments of jobs, so that they can be replayed."""
        return self.history == "arguments"


class Cut(NamedTuple):
    """A resharding of a stream: its number of shards, from the shard number `first`."""

    first: int
    shards: int


class StreamPause(NamedTuple):
    """A pause of a group, of a shard, or of both; None for all of them."""

    group: str | None
    shard: int | None

    @property
    def text(self) -> str:
        """What is paused, in words."""
        parts = (("group", self.group), ("shard", self.shard))
        return ", ".join(f"{what} {value}" for what, value in parts if value is not None)


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """The settings of a stream, stored so that every client reads the same.

    shards: hash slices of the ordering keys. keep_us: minimum time that events are kept, None
    for ever; events that a registered group has not read are kept longer. keep_bytes: maximum
    size of the events that are kept longer than a minute, in the same sense. first: number of the
    first shard. before: earlier reshardings that are still read, the oldest first. paused: what
    consumers do not handle until it is resumed.
    """

    shards: _Shards = 1
    keep_us: Annotated[int, _STREAM_KEEP] | None = None
    first: int = 0
    before: tuple[Cut, ...] = ()
    paused: tuple[StreamPause, ...] = ()
    keep_bytes: Annotated[int, _STREAM_BYTES] | None = None


def tells_all(history: str) -> bool:
    """Return whether a history level records everything that happens to jobs."""
    return history in _TELL_ALL


def shard_of(key: bytes, shards: int) -> int:
    """Return the shard of an ordering key or a job's id."""
    return shard_of_hash(zlib.crc32(key), shards)


def shard_of_hash(crc: int, shards: int) -> int:
    """Return the shard of a CRC-32 of a key."""
    return crc % shards


SPANS: Final[Mapping[str, str]] = {
    "lease": "lease_us",
    "keep": "keep_us",
    "aging": "aging_us",
    "history_keep": "history_us",
    "dead_keep": "dead_us",
    "version_wait": "version_wait_us",
    "poll": "poll_us",
    "bucket": "width_us",
}
"""The fields of the settings that are durations, by the names that users write."""


def chosen_shards(shards: int | tuple[int, int] | None) -> Mapping[str, object]:
    """Return a number of shards, or a minimum and maximum, as changes of the settings."""
    if shards is None:
        return {}
    if isinstance(shards, tuple):
        return {"shards_range": shards}
    return {"shards": shards, "shards_range": ()}


def with_shards(settings: QueueSettings, shards: int) -> QueueSettings:
    """Return settings with this number of shards, within the range; old shards stay readable."""
    if settings.shards_range:
        least, most = settings.shards_range
        shards = min(max(shards, least), most)
    return replace(settings, shards=shards, shards_read=max(shards, settings.shards_read))


def check_stream_settings(settings: StreamSettings) -> StreamSettings:
    """Return settings; raise BadInput if one is out of range."""
    check_constraints(settings)
    if settings.keep_us is not None:
        check_value(settings.keep_us, Annotated[int, _STREAM_KEEP], "keep_us")
    if settings.keep_bytes is not None:
        check_value(settings.keep_bytes, Annotated[int, _STREAM_BYTES], "keep_bytes")
    return settings


def check_queue_name(name: object, what: str = "queue") -> str:
    """Return the name of a queue, or of something with such a name.

    Args:
        name: The name.
        what: What has the name, for the error.

    Raises: BadInput: it is invalid.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadInput(
            f"{name!r} is not a {what} name.",
            hint="Use a lower-case letter, then up to 62 of a-z 0-9 _ -.",
        )
    return name


def weights_of(weights: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return the weights of tenants as settings hold them: those that are not 1, by name."""
    return tuple(sorted((tenant, weight) for tenant, weight in weights.items() if weight != 1))


def quotas_on(quotas: Sequence[Quota], tenant: str) -> list[Quota]:
    """Return the quotas that apply to a tenant's calls: its own or that of each, the queue's.

    Quotas of each tenant do not apply to jobs without a tenant.
    """
    own = [quota for quota in quotas if quota.scope == "tenant" and quota.tenant == tenant]
    if not own and tenant:
        own = [
            quota._replace(scope="tenant", tenant=tenant)
            for quota in quotas
            if quota.scope == "each"
        ]
    return [*own, *(quota for quota in quotas if quota.scope == "queue")]


def with_quota(quotas: Sequence[Quota], new: Quota) -> tuple[Quota, ...]:
    """Replace the quota of the same scope and tenant; an empty quota is removed."""
    others = [quota for quota in quotas if quota[:2] != new[:2]]
    return tuple(sorted([*others, new] if new.depth or new.rate else others))


def check_quota(quota: Quota) -> Quota:
    """Return a quota; raise BadInput if a number is out of range."""
    check_constraints(quota)
    if quota.rate:
        check_value(quota.per_us, Annotated[int, _PERIOD], "per_us")
    return quota


def check_settings(settings: QueueSettings) -> QueueSettings:
    """Return settings; raise BadInput if one is out of range."""
    check_constraints(settings)
    for name, least_us in (
        ("aging_us", AGING_US_MIN),
        ("dead_us", SECOND_US),
        ("poll_us", POLL_US_MIN),
    ):
        if 0 < (value := getattr(settings, name)) < least_us:
            raise bad_value(value, constraints_of(QueueSettings)[name], name)
    if settings.shards_range:
        _check_range(settings.shards_range)
    for quota in settings.quotas:
        check_quota(quota)
    return settings


def _check_range(shards: object) -> None:
    match shards:
        case (int(least), int(most)) if 1 <= least <= most <= SHARDS_MAX:
            return
    raise BadInput(
        f"`shards` must be a minimum and a maximum from 1 to {SHARDS_MAX} (got {shards!r:.80}).",
        hint="Use an integer, or a pair such as (1, 16).",
    )
