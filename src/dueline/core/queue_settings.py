"""What a queue is set to."""

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.errors import BadInput

DEFAULT_QUEUE = "default"
SHARDS_MAX = 1024
LEASE_US_MIN = SECOND_US // 10
LEASE_US_MAX = DAY_US
KEEP_US_MAX = 3660 * DAY_US
AGING_US_MIN = 1_000
PAUSED_MAX = 1_000
WEIGHT_MAX = 1_000
QUOTAS_MAX = 1_000
QUOTA_MAX = 1_000_000
QUOTA_PER_US_MIN = SECOND_US // 100

History = Literal["attempts", "all", "arguments", "off"]
Deliver = Literal["at_least_once", "at_most_once"]

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")


class Quota(NamedTuple):
    """How many jobs a queue takes in: all of it, one tenant's, or those of each other tenant.

    depth: how many may wait; 0: any number. rate: how many may come in a span of `per_us`; 0:
    any number.
    """

    scope: Literal["queue", "tenant", "each"] = "queue"
    tenant: str = ""
    depth: int = 0
    rate: int = 0
    per_us: int = 0


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """A queue's settings, stored so that every client reads the same.

    shards: hash slices that new jobs spread over; shards_read: those that workers read, which
    are as many and those that are left over. shards_range: the least and the most there may be,
    where the monitor chooses by load. width_us: of a bucket; fixed when the queue is made.
    lease_us: how long a claim lasts without a beat. history: which rows are kept of attempts; see
    `tells_all`, `keeps_arguments`.
    keep_us: how long results are kept, 0 for not at all.
    aging_us: how long a job waits to gain one step of priority, 0 for never.
    is_paused: no job is claimed. paused_tenants, paused_tasks: none of these.
    weights: how many turns tenants have where others have one.
    deliver: what becomes of a job whose worker died in its handler: run again, or lost.
    history_us: how long rows of the history are kept at least.
    dead_us: how long dead jobs are kept at least, 0 until somebody purges them.
    quotas: how many jobs are taken in.
    """

    shards: int = 1
    shards_read: int = 1
    width_us: int = DAY_US
    lease_us: int = 30 * SECOND_US
    history: History = "attempts"
    keep_us: int = DAY_US
    aging_us: int = 0
    is_paused: bool = False
    deliver: Deliver = "at_least_once"
    history_us: int = 7 * DAY_US
    dead_us: int = 0
    paused_tenants: tuple[str, ...] = ()
    paused_tasks: tuple[str, ...] = ()
    weights: tuple[tuple[str, int], ...] = ()
    quotas: tuple[Quota, ...] = ()
    shards_range: tuple[int, ...] = ()

    @property
    def has_leftovers(self) -> bool:
        """Tell whether shards are read that no new jobs come to."""
        return self.shards_read > self.shards

    @property
    def is_once(self) -> bool:
        """Tell whether a handler is never called twice for one job."""
        return self.deliver == "at_most_once"

    @property
    def tells_all(self) -> bool:
        """Tell whether the history holds births and changes too, and so can be audited."""
        return tells_all(self.history)

    @property
    def keeps_arguments(self) -> bool:
        """Tell whether the history holds the arguments of jobs, so that they can be replayed."""
        return self.history == "arguments"


class Cut(NamedTuple):
    """One way to cut a stream: into so many shards, from a number on."""

    first: int
    shards: int


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """A stream's settings, stored so that every client reads the same.

    shards: hash slices of the ordering keys. keep_us: how long events are kept at least, None
    for ever; those that a registered group has not read stay anyway. first: the number of the
    first shard. before: the cuts of before that are read yet, the oldest first.
    """

    shards: int = 1
    keep_us: int | None = None
    first: int = 0
    before: tuple[Cut, ...] = ()


def tells_all(history: str) -> bool:
    """Tell whether a level of history is of everything that happens to jobs."""
    return history in ("all", "arguments")


def shard_of(key: bytes, shards: int) -> int:
    """Tell the slice of an ordering key, or of a job's id."""
    return zlib.crc32(key) % shards


def chosen_shards(shards: int | tuple[int, int] | None) -> Mapping[str, object]:
    """Write a number of shards, or the least and the most of them, as settings hold it."""
    if shards is None:
        return {}
    if isinstance(shards, tuple):
        return {"shards_range": shards}
    return {"shards": shards, "shards_range": ()}


def with_shards(settings: QueueSettings, shards: int) -> QueueSettings:
    """Give a queue so many shards, or as many as its range allows; those there were are read."""
    if settings.shards_range:
        least, most = settings.shards_range
        shards = min(max(shards, least), most)
    return replace(settings, shards=shards, shards_read=max(shards, settings.shards_read))


def check_stream_settings(settings: StreamSettings) -> StreamSettings:
    """Let settings pass, or say which of them is out of range."""
    if type(settings.shards) is not int or not 1 <= settings.shards <= SHARDS_MAX:
        raise BadInput(f"shards is {settings.shards!r}.", hint=f"Use 1 to {SHARDS_MAX}.")
    if settings.keep_us is not None and not 0 < settings.keep_us <= KEEP_US_MAX:
        raise BadInput(
            f"keep is {settings.keep_us / SECOND_US} s.", hint="Use more than 0, or None for ever."
        )
    return settings


def check_queue_name(name: object) -> str:
    """Let a queue's name pass, or say what is wrong with it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadInput(
            f"{name!r} is not a queue name.",
            hint="Use a lower-case letter, then up to 62 of a-z 0-9 _ -.",
        )
    return name


def weights_of(weights: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Write what tenants weigh as settings hold it: those that do not weigh 1, by name."""
    return tuple(sorted((tenant, weight) for tenant, weight in weights.items() if weight != 1))


def quotas_on(quotas: Sequence[Quota], tenant: str) -> list[Quota]:
    """Name the quotas of a tenant's calls: its own, or that of each, then the queue's.

    Jobs without a tenant are nobody's: no quota of each tenant is on them.
    """
    own = [one for one in quotas if one.scope == "tenant" and one.tenant == tenant]
    if not own and tenant:
        own = [one._replace(scope="tenant", tenant=tenant) for one in quotas if one.scope == "each"]
    return [*own, *(one for one in quotas if one.scope == "queue")]


def with_quota(quotas: Sequence[Quota], new: Quota) -> tuple[Quota, ...]:
    """Put a quota into the place of the one of its scope; one of nothing goes."""
    others = [one for one in quotas if one[:2] != new[:2]]
    return tuple(sorted([*others, new] if new.depth or new.rate else others))


def check_quota(quota: Quota) -> Quota:
    """Let a quota pass, or say what of it is out of range."""
    for name, number in (("depth", quota.depth), ("rate", quota.rate)):
        if type(number) is not int or not 0 <= number <= QUOTA_MAX:
            raise BadInput(f"{name} is {number!r:.20}.", hint=f"Use 1 to {QUOTA_MAX}.")
    if quota.rate and not QUOTA_PER_US_MIN <= quota.per_us <= DAY_US:
        raise BadInput(
            f"per is {quota.per_us / SECOND_US} s, of a rate.", hint="Use 10 ms to one day."
        )
    return quota


def check_settings(  # noqa: C901, PLR0912  (one flat branch for each setting)
    settings: QueueSettings,
) -> QueueSettings:
    """Let settings pass, or say which of them is out of range."""
    numbers = (
        settings.shards, settings.lease_us, settings.keep_us, settings.aging_us,
        settings.history_us, settings.dead_us,
    )  # fmt: skip
    if any(type(number) is not int for number in numbers):
        raise BadInput("A queue's settings are whole numbers.", hint="Give shards as an int.")
    if not 1 <= settings.shards <= SHARDS_MAX:
        raise BadInput(f"shards is {settings.shards}.", hint=f"Use 1 to {SHARDS_MAX}.")
    if settings.shards_range:
        _check_range(settings.shards_range)
    if not LEASE_US_MIN <= settings.lease_us <= LEASE_US_MAX:
        raise BadInput(f"lease is {settings.lease_us / SECOND_US} s.", hint="Use 0.1 s to one day.")
    if not 0 <= settings.keep_us <= KEEP_US_MAX:
        raise BadInput(
            f"keep is {settings.keep_us / SECOND_US} s.",
            hint="Use 0 to keep no results, and ten years at most.",
        )
    if settings.aging_us and not AGING_US_MIN <= settings.aging_us <= KEEP_US_MAX:
        raise BadInput(
            f"aging is {settings.aging_us / SECOND_US} s.",
            hint="Use 1 ms to ten years for each step of priority, or 0 for none.",
        )
    if not SECOND_US <= settings.history_us <= KEEP_US_MAX:
        raise BadInput(
            f"history_keep is {settings.history_us / SECOND_US} s.",
            hint='Use 1 s to ten years, or history="off" for none.',
        )
    if settings.dead_us and not SECOND_US <= settings.dead_us <= KEEP_US_MAX:
        raise BadInput(
            f"dead_keep is {settings.dead_us / SECOND_US} s.",
            hint="Use 1 s to ten years, or 0 to keep dead jobs until they are purged by hand.",
        )
    if max(len(settings.paused_tenants), len(settings.paused_tasks)) > PAUSED_MAX:
        raise BadInput(
            f"More than {PAUSED_MAX} tenants or tasks of one queue would be paused.",
            hint="Pause the queue, or resume some of them first.",
        )
    for tenant, weight in settings.weights:
        if type(weight) is not int or not 1 <= weight <= WEIGHT_MAX:
            raise BadInput(
                f"The tenant {tenant:.80} weighs {weight!r:.20}.",
                hint=f"Use a whole number of turns, 1 to {WEIGHT_MAX}.",
            )
    if len(settings.weights) > PAUSED_MAX:
        raise BadInput(
            f"More than {PAUSED_MAX} tenants have a weight.", hint="Leave out those of 1."
        )
    if len(settings.quotas) > QUOTAS_MAX:
        raise BadInput(
            f"More than {QUOTAS_MAX} tenants have a quota.", hint="Set one for each tenant."
        )
    for quota in settings.quotas:
        check_quota(quota)
    if settings.history not in get_args(History):
        raise BadInput(
            f"history is {settings.history!r}.", hint=f"Use one of {', '.join(get_args(History))}."
        )
    if settings.deliver not in get_args(Deliver):
        raise BadInput(
            f"deliver is {settings.deliver!r}.", hint=f"Use one of {', '.join(get_args(Deliver))}."
        )
    return settings


def _check_range(shards: object) -> None:
    match shards:
        case (int(least), int(most)) if 1 <= least <= most <= SHARDS_MAX:
            return
    raise BadInput(
        f"shards is {shards!r:.80}.", hint=f"Give the least and the most, from 1 to {SHARDS_MAX}."
    )
