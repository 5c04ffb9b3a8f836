"""Jobs and workflows by the first digits of their ids."""

import re
from collections.abc import Collection
from itertools import islice
from typing import Final

from dueline.admin.search import SCAN_MAX, JobFilter, ends_of, search
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, NotFound
from dueline.core.ids import created_us
from dueline.core.job import JobId
from dueline.workflows import records as workflow_records

DIGITS_MIN: Final = 4
_SHOWN_MAX: Final = 10
_WHOLE: Final = "Use all 32 digits."
_PREFIX: Final = re.compile(rf"[0-9a-f]{{{DIGITS_MIN},31}}")


def is_prefix(text: str) -> bool:
    """Return whether this may be the first digits of an id, and not a whole one."""
    return _PREFIX.fullmatch(text.lower()) is not None


def find_id(engine: Engine, text: str) -> JobId:
    """Return the only id that starts with these digits, of jobs that wait, run, are dead or ended.

    Raises: NotFound: no job that was read has such an id. BadInput: several have.
    """
    prefix = text.lower()
    ids: set[str] = set()
    for state in (None, "dead"):
        rows, _, is_capped, _ = search(engine, JobFilter(state), limit=SCAN_MAX)
        if is_capped:  # another one may start with these digits, too
            raise BadInput("There are too many jobs to find one by a few digits.", hint=_WHOLE)
        ids.update(row.id.hex() for row in rows if row.id.hex().startswith(prefix))
    since_us = created_us(JobId(bytes.fromhex(prefix.ljust(32, "0"))))
    past = ends_of(engine, engine.catalog.names(), since_us)
    ids.update(attempt.job for attempt in islice(past, SCAN_MAX) if attempt.job.startswith(prefix))
    return _only(ids, "job", text)


def find_flow(engine: Engine, text: str) -> JobId:
    """Return the only id of a workflow that starts with these digits.

    Raises: NotFound: no workflow has such an id. BadInput: several have.
    """
    each = (flow.hex() for flow, _ in workflow_records.listed(engine.store))
    return _only({known for known in each if known.startswith(text.lower())}, "workflow", text)


def _only(ids: Collection[str], what: str, text: str) -> JobId:
    if not ids:
        raise NotFound(f"No {what} has an id that starts with {text}.", hint=_WHOLE)
    if len(ids) > 1:
        shown = ", ".join(sorted(ids)[:_SHOWN_MAX])
        raise BadInput(f"{len(ids)} ids start with {text}: {shown}.", hint="Use more digits.")
    return JobId(bytes.fromhex(next(iter(ids))))
