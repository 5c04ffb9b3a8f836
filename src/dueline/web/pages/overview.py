"""The overview: how late, how much, how fast, and what is due."""

from collections.abc import Iterable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dueline.admin.trend_lines import PERIODS, TrendPoint
from dueline.admin.watch import STEP_US, Point
from dueline.core.clock import SECOND_US
from dueline.web.drawing import bars
from dueline.web.rendering import render
from dueline.web.site import site_of

STARTS_SHOWN = 5
"""Maximum number of starts of workers that are listed."""

SLOW_US = 30 * SECOND_US
"""Values that are further apart than three times this, or three steps, are not joined by a line."""


def overview(request: Request) -> Response:
    """Show the overview."""
    site = site_of(request)
    picture = site.admin.stats(max_age=1.5)
    counts = picture.counts
    timeline = site.timeline()
    name = range_of(request)
    since_us = picture.now_us - PERIODS[name]
    busiest = sorted(counts, key=lambda count: (-count.ready, -count.running, count.queue))
    return render(
        request,
        "overview.html",
        picture=picture,
        throughput=picture.throughput,
        ready=sum(count.ready for count in counts),
        running=sum(count.running for count in counts),
        waiting=sum(count.scheduled + count.retrying + count.paused for count in counts),
        dead=sum(count.dead for count in counts),
        is_capped=any(count.is_capped for count in counts),
        oldest_us=min(
            (count.oldest_ready_us for count in counts if count.oldest_ready_us), default=0
        ),
        held=sum(worker.held for worker in picture.workers),
        slots=sum(worker.slots for worker in picture.workers),
        alerts=site.admin.alerts(),
        unserved=[count.queue for count in counts if count.ready and not count.workers],
        unknown=sorted({text for texts in picture.unknown.values() for text in texts}),
        busiest=busiest[:8],
        more=max(0, len(busiest) - 8),
        timeline=None if timeline is None else bars(timeline),
        shown_range=name,
        ranges=list(PERIODS),
        starts=[start for start in site.admin.starts() if start.at_us >= since_us][-STARTS_SHOWN:],
    )


def series(request: Request) -> Response:
    """Return the series of the charts, as columns: times in seconds, then one for each line.

    What a step that is not over has so far would look like a drop at the end of a line. A step of
    which nothing is known has no values, so that the charts show a gap.
    """
    admin, name = site_of(request).admin, range_of(request)
    trend = admin.trend(name)
    lines = [_line_of(point) for point in trend.points]
    if name == "1h":
        lines = _with_points(lines, admin.stats(max_age=1.5).series)
    columns = list(zip(*lines, strict=True)) or [()] * len(_COLUMNS)
    oldest_us = lines[0][0] * SECOND_US if lines else 0
    return JSONResponse(
        dict(zip(_COLUMNS, columns, strict=True))
        | {
            "gap": 3 * max(trend.step_us, SLOW_US) // SECOND_US,
            "starts": [
                [start.at_us // SECOND_US, start.workers]
                for start in admin.starts()
                if start.at_us >= oldest_us
            ],
        }
    )


_COLUMNS = ("at", "done", "failed", "p50", "p95", "p99", "ready")
_Line = tuple[Any, ...]


def range_of(request: Request) -> str:
    """Return the period that a page shows."""
    name = request.query_params.get("range", "1h")
    return name if name in PERIODS else "1h"


def _line_of(point: TrendPoint) -> _Line:
    return (
        point.at_us // SECOND_US,
        point.done_per_s,
        point.failed_per_s,
        *_seconds(point.latencies),
        point.ready,
    )


def _seconds(latencies: Iterable[int | None]) -> Iterable[float | None]:
    return (None if us is None else us / SECOND_US for us in latencies)


def _with_points(lines: Sequence[_Line], points: Sequence[Point]) -> list[_Line]:
    """Return the minutes before the points that this process knows, and the points."""
    first_s = points[0].at_us // SECOND_US if points else 1 << 62
    ready_at = {line[0]: line[-1] for line in lines}
    merged = [line for line in lines if line[0] < first_s]
    for point in points:
        per_s, is_whole, at_s = SECOND_US / STEP_US, point.is_whole, point.at_us // SECOND_US
        late = point.latencies if point.latencies and is_whole else (None,) * 3
        merged.append(
            (
                at_s,
                point.done * per_s if is_whole else None,
                point.failed * per_s if is_whole else None,
                *_seconds(late),
                point.ready if point.ready is not None else ready_at.get(at_s),
            )
        )
    return merged


ROUTES = [Route("/", overview), Route("/series.json", series)]
