"""Offices that one worker holds at a time, and who does."""

from typing import Final

from dueline.codec import decode
from dueline.recipes.lease import Grant
from dueline.store import Records

OFFICES: Final = "offices"
"""The scope of their leases."""

MONITOR: Final = "monitor"


def holder_of(records: Records) -> Grant | None:
    """Read who was last elected monitor; its `until_us` tells until when. None: nobody ever."""
    found = records.read(OFFICES, after=None, limit=1)
    return decode(found[0].value, Grant) if found else None
