"""What became of a conditional write.

For stores whose requests may be given up and land later: between the reading that does not show
one and its repeat, too, which is then refused because of itself (rule U5). Pure: what stands in a
row or a record is compared with what the request would leave there.
"""

from collections.abc import Mapping, Sequence
from enum import Enum

from dueline.core.job import Token
from dueline.core.store import NO_VERSION, Delete, Write


class Fate(Enum):
    """What became of a write, as far as the row or the records show it.

    OPEN: it has not happened and may yet; repeating it is safe. UNKNOWN: nobody can say.
    """

    HELD = "it has happened"
    REFUSED = "it has not happened and never will"
    OPEN = "it has not happened yet"
    UNKNOWN = "it may have happened, and what it wrote has gone since"


def fate_of(
    present: Token | None,
    *,
    named: Token,
    written: Token | None,
    is_unsure: bool,
    is_carry: bool = False,
) -> Fate:
    """Tell what became of a verdict on one row.

    Args:
      present: the token in the row, None without a row.
      named: the token that the verdict names.
      written: the token that it leaves there; None where it takes the row away.
      is_unsure: an earlier request for it was given up. A row that has gone since counts as
        taken by that one.
      is_carry: it leaves a stub, which anybody may have completed since.
    """
    if present == named:
        return Fate.OPEN
    if present is not None:
        return Fate.HELD if present == written else Fate.REFUSED
    if is_unsure and is_carry:
        return Fate.UNKNOWN
    return Fate.HELD if is_unsure and written is None else Fate.REFUSED


def fate_of_commit(
    writes: Sequence[Write],
    stored: Mapping[str, bytes],
    live: Mapping[str, bytes],
    *,
    is_unsure: bool,
) -> Fate:
    """Tell what became of a commit.

    Args:
      stored, live: the versions of its records as they are, by key; `live` without the expired.
      is_unsure: an earlier request for it was given up.
    """
    if is_unsure and all(
        stored.get(write.key, NO_VERSION)
        == (NO_VERSION if isinstance(write, Delete) else write.version)
        for write in writes
    ):
        return Fate.HELD
    if all(write.expect in (None, live.get(write.key, NO_VERSION)) for write in writes):
        return Fate.OPEN
    return Fate.UNKNOWN if is_unsure else Fate.REFUSED
