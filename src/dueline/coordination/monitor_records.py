"""What audits have found, the last of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from dueline.core import monitor_notes
from dueline.core.clock import DAY_US
from dueline.core.codec import decode, encode
from dueline.core.store import Put, Records

FINDINGS_MAX = 20
KEEP_US = 30 * DAY_US

_KIND, _NAME = "audit", "findings"


@dataclass(frozen=True, slots=True)
class Finding:
    """A lane that was listed nowhere. job: the id of its first job, due since `due_us`."""

    at_us: int
    queue: str
    shard: int
    bucket: int
    priority: int
    tenant: str
    job: str
    due_us: int


def findings(records: Records) -> list[Finding]:
    """Read what audits have found, the last one last."""
    record = monitor_notes.read(records, _KIND, _NAME)
    return [] if record is None else decode(record.value, list[Finding])


def added(records: Records, found: Sequence[Finding], version: bytes, *, now_us: int) -> Put:
    """Make the note that adds to what was found."""
    kept = [*findings(records), *found][-FINDINGS_MAX:]
    return monitor_notes.put(_KIND, _NAME, encode(kept), version, expires_us=now_us + KEEP_US)
