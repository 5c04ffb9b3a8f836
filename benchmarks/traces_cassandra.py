"""What a Cassandra node's traces tell of reads of jobs."""

import re
from typing import Any, Final, Literal

from dueline.stores.cursor_cache import START

TRACE_WAIT_S: Final = 120
_FROM_START: Final = START[0].to_bytes(8, signed=True)
_READ: Final = re.compile(r"Read (\d+) live rows and (\d+) tombstone cells")


def reads_streams(statement: Any) -> bool:  # noqa: ANN401  (the driver's)
    """Tell whether a statement reads the rows of a stream, or the list of its buckets."""
    prepared = getattr(statement, "prepared_statement", None)
    text = prepared.query_string if prepared else ""
    return text.startswith("SELECT") and (".stream_rows " in text or ".stream_buckets " in text)


def kind_of(statement: Any) -> Literal["again", "onward"] | None:  # noqa: ANN401  (the driver's)
    """Tell how a statement reads jobs; None: it does not.

    again: a lane from its start, as a claimer does that does not know it, or whose memory of it
    is old. onward: from where a claimer had come to, and by key.
    """
    prepared = getattr(statement, "prepared_statement", None)
    text = prepared.query_string if prepared else ""
    if not text.startswith("SELECT") or ".jobs " not in text:
        return None
    return "again" if _FROM_START in statement.values else "onward"


def tombstones(future: Any) -> int:  # noqa: ANN401  (the driver's)
    """Count the deleted rows that a traced read crossed, by the server's own account."""
    trace = future.get_query_trace(max_wait=TRACE_WAIT_S)
    told = [_READ.search(event.description) for event in trace.events]
    found = [int(match[2]) for match in told if match]
    assert found, "the trace does not say what was read"
    return sum(found)
