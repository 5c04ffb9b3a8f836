"""Checks of the options of a call.

They run at every enqueue, where they are faster by hand than through `core.constraints`.
"""

import re
from functools import lru_cache

from dueline.core.call_options import CallOptions, Carried
from dueline.core.clock import DAY_US
from dueline.core.errors import BadInput
from dueline.core.lane import LIMIT_MARK, PRIORITY_MAX, PRIORITY_MIN
from dueline.core.queue_settings import QueueSettings, check_queue_name

DUE_AHEAD_US_MAX = 3660 * DAY_US  # ten years and the leap days in them
TENANT_CHARACTERS_MAX = 255

_TENANT = re.compile(f"[^\0{LIMIT_MARK}\ud800-\udfff]{{0,{TENANT_CHARACTERS_MAX}}}")


def check_call(
    queue: str, due_us: int | None, priority: object, tenant: object, *, now_us: int
) -> None:
    """Raise BadInput if an option of a call is out of range."""
    try:
        _check_lane(queue, priority, tenant)
    except TypeError:  # a value without a hash, so of a wrong type
        _check_lane.__wrapped__(queue, priority, tenant)
    if due_us is not None:
        check_due(due_us, now_us=now_us)


@lru_cache(maxsize=1024, typed=True)
def _check_lane(queue: str, priority: object, tenant: object) -> None:
    """Raise BadInput if an option that names a lane is invalid; calls repeat those of others."""
    check_queue_name(queue)
    check_priority(priority)
    check_tenant(tenant)


def check_due(due_us: int, *, now_us: int) -> None:
    """Raise BadInput if a due time is out of range."""
    if due_us > now_us + DUE_AHEAD_US_MAX:
        raise BadInput("The job is due more than ten years ahead.", hint="Choose an earlier time.")
    if due_us < 0:
        raise BadInput("The job is due before 1970.", hint="Omit `due` to run the job at once.")


def check_priority(priority: object) -> None:
    """Raise BadInput if a priority is out of range."""
    if type(priority) is not int or not PRIORITY_MIN <= priority <= PRIORITY_MAX:
        raise BadInput(
            f"`priority` must be a signed 32-bit integer (got {priority!r:.80}).",
            hint="Larger runs first; 0 is the default.",
        )


def check_tenant(tenant: object) -> None:
    """Raise BadInput if a tenant's name is invalid."""
    if not isinstance(tenant, str) or not _TENANT.fullmatch(tenant):
        raise BadInput(
            f"`tenant` must be a name of up to {TENANT_CHARACTERS_MAX} characters "
            f"(got {tenant!r:.80}).",
            hint="Use no control characters.",
        )


def check_options(options: CallOptions, last_us: int, window_us: int) -> None:
    """Raise BadInput if a job cannot run. last_us: the latest time at which it may become due."""
    if not 0 <= window_us <= DUE_AHEAD_US_MAX:
        raise BadInput(f"`window` must be at most ten years (got {window_us / 1_000_000} s).")
    if options.expires_us is not None and options.expires_us <= last_us:
        raise BadInput(
            "The job expires before it is due, so it would never run.",
            hint="Choose a later expiry, or an earlier time.",
        )


def check_delivery(carried: Carried, settings: QueueSettings, task: str, queue: str) -> None:
    """Raise BadInput for a durable function in a queue that delivers at most once."""
    if carried.durable is not None and settings.is_once:
        raise BadInput(
            f"The durable function {task} cannot run in the queue {queue}, which delivers at most "
            "once: it runs again after each wait.",
            hint="Choose another queue, and step(..., once=True) for what may run only once.",
        )
