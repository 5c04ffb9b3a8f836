"""Offices that one worker holds at a time, and who does."""

from typing import Final

from dueline.coordination.leases import Grant, grants
from dueline.core.store import Records

OFFICES: Final = "offices"
"""The scope of their leases."""

MONITOR: Final = "monitor"


def holder_of(records: Records) -> Grant | None:
    """Read who was last elected monitor; its `until_us` tells until when. None: nobody ever."""
    return grants(records, OFFICES).get(MONITOR)
