"""The status of a conditional write whose answer was lost.

For stores in which a request that timed out may still be applied later, even between the read that
does not show it and the retry, which then fails because of it (rule U5). These functions only
compare a row or record that was read with the values that the request would write.
"""

from collections.abc import Mapping, Sequence
from enum import Enum

from dueline.core.job import Token
from dueline.core.store import NO_VERSION, Delete, Write


class WriteStatus(Enum):
    """The status of a write, as far as the row or the records show it.

    OPEN: not applied yet; a retry is safe. UNKNOWN: cannot be decided.
    """

    HELD = "it was applied"
    REFUSED = "it was not applied and never will be"
    OPEN = "it was not applied yet"
    UNKNOWN = "it may have been applied, and its result was replaced since"


def status_of_write(
    present: Token | None, *, named: Token, written: Token | None, is_unsure: bool
) -> WriteStatus:
    """Return the status of a conditional write to one row.

    Args:
      present: The row's token; None without a row.
      named: The token that the write expects.
      written: The token that the write leaves; None if it deletes the row.
      is_unsure: An earlier request for it timed out. A row that is absent now counts as deleted
        by that request.
    """
    if present == named:
        return WriteStatus.OPEN
    if present is not None and present == written:
        return WriteStatus.HELD
    if is_unsure and written not in (None, named):
        return WriteStatus.UNKNOWN  # applied, it let another process claim the row, or end the job
    is_deleted = is_unsure and present is None and written is None
    return WriteStatus.HELD if is_deleted else WriteStatus.REFUSED


def status_of_commit(
    writes: Sequence[Write],
    stored: Mapping[str, bytes],
    live: Mapping[str, bytes],
    *,
    is_unsure: bool,
) -> WriteStatus:
    """Return the status of a commit.

    Args:
      stored: The versions of its records, by key, expired ones included.
      live: The same without expired records.
      is_unsure: An earlier request for it timed out.
    """
    if is_unsure and all(
        stored.get(write.key, NO_VERSION)
        == (NO_VERSION if isinstance(write, Delete) else write.version)
        for write in writes
    ):
        return WriteStatus.HELD
    if all(write.expect in (None, live.get(write.key, NO_VERSION)) for write in writes):
        return WriteStatus.OPEN
    return WriteStatus.UNKNOWN if is_unsure else WriteStatus.REFUSED
