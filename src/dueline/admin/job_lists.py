"""Lists and counts of jobs: those with a row, and ended ones from the history."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from dueline.admin.ended_search import search_ended
from dueline.admin.job_views import JobPage, JobSummary, summaries_of, summary_of_attempt
from dueline.admin.latest import search_latest
from dueline.admin.search import (
    IN_HISTORY,
    JobFilter,
    Place,
    Rows,
    count_like,
    search,
)
from dueline.core.engine import Engine
from dueline.core.errors import BadInput

_PLACE: Final = re.compile(r"(w?)([0-9]{1,19})-([0-9a-f]{32})")
_WAITING: Final = "w"
"""Start of the place of a job with a row in a list of expired ones."""

_FIRST_ID: Final = "0" * 32
_LAST_ID: Final = "f" * 32


class Count(NamedTuple):
    """The number of jobs that match; is_capped: there may be more, since not all were read."""

    jobs: int
    is_capped: bool


def list_jobs(
    engine: Engine,
    like: JobFilter,
    *,
    limit: int,
    most: int,
    after: str | None = None,
    within_us: int | None = None,
) -> JobPage:
    """List jobs by time; dead ones, and ended ones from the history, the latest first.

    Expired jobs that no worker has ended yet come before those in the history.

    Args:
        engine: The engine.
        like: Which jobs; without a state, those that wait or run.
        limit: Maximum number of jobs.
        most: Maximum number of jobs that are read.
        after: `next` of the page before.
        within_us: Maximum time of reading.

    Raises:
        BadInput: `after` cannot be read, or ended jobs cannot be searched like this.
        NotFound: The queue does not exist.
    """
    is_waiting, place = (False, None) if after is None else _read_place(after)
    if like.state == "dead":
        _refuse_period(like)
        rows = search_latest(
            engine, like, limit=limit, most=most, before=place, within_us=within_us
        )
        return _page_of(engine, rows)
    if like.state not in IN_HISTORY:
        _refuse_period(like)
        rows = search(engine, like, limit=limit, most=most, after=place, within_us=within_us)
        return _page_of(engine, rows)
    first: Sequence[JobSummary] = ()
    is_capped = False
    if like.state == "expired" and (is_waiting or place is None):
        rows = search(engine, like, limit=limit, most=most, after=place, within_us=within_us)
        page = _page_of(engine, rows)
        first, place, is_capped = page.jobs, None, page.is_capped
        if len(first) == limit and page.next is not None:
            return JobPage(first, f"{_WAITING}{page.next}", is_capped)
        if len(first) == limit:  # the history begins on the next page
            has_more = bool(search_ended(engine, like, limit=1, within_us=within_us).attempts)
            start = (engine.time.latest_us(), _LAST_ID)
            return JobPage(first, _written(start) if has_more else None, is_capped)
    known = {summary.id for summary in first}
    past = search_ended(
        engine, like, limit=limit - len(first), most=most, before=place, within_us=within_us
    )
    ended = [summary_of_attempt(attempt) for attempt in past.attempts]
    rest = [
        summary for summary in ended if summary.id not in known
    ]  # a worker may have ended it meanwhile
    last = ended[-1].place if past.more and ended else None
    if last is None and past.since_us:
        last = (past.since_us, _FIRST_ID)
    return JobPage([*first, *rest], _written(last), is_capped or past.is_capped, past.since_us)


def count_jobs(
    engine: Engine, like: JobFilter, *, most: int, within_us: int | None = None
) -> Count:
    """Count the jobs that match a filter.

    Args: most: maximum number of jobs to read. within_us: maximum time of reading rows.

    Raises: as `list_jobs`.
    """
    if like.state not in IN_HISTORY:
        return Count(*count_like(engine, like, most=most, within_us=within_us))
    past = search_ended(engine, like, limit=most, most=most)
    count, is_capped = len(past.attempts), past.is_capped or past.more
    if like.state == "expired":
        rows, is_cut = count_like(engine, like, most=most, within_us=within_us)
        count, is_capped = count + rows, is_capped or is_cut
    return Count(count, is_capped)


def _refuse_period(like: JobFilter) -> None:
    """Raise BadInput for a time range of jobs that have not ended."""
    if like.since_us is not None or like.until_us is not None:
        raise BadInput(
            "A time range needs jobs that have ended.", hint="Add state:ended, or another end."
        )


def _page_of(engine: Engine, rows: Rows) -> JobPage:
    summaries = summaries_of(engine, rows.jobs)
    last = summaries[-1].place if rows.more and summaries else rows.stopped
    return JobPage(summaries, _written(last), rows.is_capped)


def _written(place: Place | None) -> str | None:
    return None if place is None else f"{place[0]}-{place[1]}"


def _read_place(text: str) -> tuple[bool, Place]:
    """Return whether a place is among the rows of expired jobs, and the place."""
    match = _PLACE.fullmatch(text)
    if match is None:
        raise BadInput(f"{text!r:.80} is not the end of a page.", hint="Pass `next` of a page.")
    return match[1] == _WAITING, (int(match[2]), match[3])
