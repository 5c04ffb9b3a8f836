"""What a call may ask for."""

from dueline.core.call_options import CallOptions
from dueline.core.clock import DAY_US
from dueline.core.errors import BadInput
from dueline.core.lane import LIMIT_MARK, PRIORITY_MAX, PRIORITY_MIN
from dueline.core.queue_settings import check_queue_name

DUE_AHEAD_US_MAX = 3660 * DAY_US  # ten years and the leap days in them
TENANT_CHARACTERS_MAX = 255


def check_call(
    queue: str, due_us: int | None, priority: object, tenant: object, *, now_us: int
) -> None:
    """Let a call pass, or say what of it is out of range."""
    check_queue_name(queue)
    if due_us is not None:
        check_due(due_us, now_us=now_us)
    check_priority(priority)
    check_tenant(tenant)


def check_due(due_us: int, *, now_us: int) -> None:
    """Let a due time pass, or say why it cannot be one."""
    if due_us > now_us + DUE_AHEAD_US_MAX:
        raise BadInput("The job is due more than ten years ahead.", hint="Choose an earlier time.")
    if due_us < 0:
        raise BadInput("The job is due before 1970.", hint="Leave due out to run it at once.")


def check_priority(priority: object) -> None:
    """Let a priority pass, or say what is wrong with it."""
    if type(priority) is not int or not PRIORITY_MIN <= priority <= PRIORITY_MAX:
        raise BadInput(
            f"The priority {priority!r} is not a signed 32-bit integer.",
            hint="Larger runs first; 0 is the default.",
        )


def check_tenant(tenant: object) -> None:
    """Let a tenant's name pass, or say what is wrong with it."""
    if not _is_tenant(tenant):
        raise BadInput(
            f"The tenant {tenant!r:.80} is not a name of up to {TENANT_CHARACTERS_MAX} characters."
        )


def check_options(options: CallOptions, last_us: int, window_us: int) -> None:
    """Refuse what cannot be: last_us is the latest time at which the job may come to be due."""
    if not 0 <= window_us <= DUE_AHEAD_US_MAX:
        raise BadInput("The window is longer than ten years, or negative.")
    if options.expires_us is not None and options.expires_us <= last_us:
        raise BadInput(
            "The job expires before it is due, so that it would never run.",
            hint="Choose a later expiry, or an earlier time.",
        )


def _is_tenant(name: object) -> bool:
    """Tell whether this can name a tenant: text that every store can keep."""
    if not isinstance(name, str) or len(name) > TENANT_CHARACTERS_MAX:
        return False
    if "\0" in name or LIMIT_MARK in name:
        return False
    return not any("\ud800" <= character <= "\udfff" for character in name)
