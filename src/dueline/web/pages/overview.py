"""The overview: how late, how much, how fast, and what is due."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dueline.admin.watch import STEP_US
from dueline.web.drawing import bars
from dueline.web.rendering import render
from dueline.web.site import site_of


def overview(request: Request) -> Response:
    """Show the overview."""
    site = site_of(request)
    picture = site.admin.stats(max_age=1.5)
    counts = picture.counts
    timeline = site.timeline()
    busiest = sorted(counts, key=lambda one: (-one.ready, -one.running, one.queue))
    return render(
        request,
        "overview.html",
        picture=picture,
        throughput=picture.throughput,
        ready=sum(count.ready for count in counts),
        running=sum(count.running for count in counts),
        waiting=sum(count.scheduled + count.retrying for count in counts),
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
    )


def series(request: Request) -> Response:
    """Return the series of the charts, as columns: times in seconds, then one for each line.

    What a step that is not over has so far would look like a drop at the end of a line.
    """
    points = site_of(request).admin.stats(max_age=1.5).series

    def rates(name: str) -> list[float | None]:
        return [
            getattr(point, name) * 1e6 / STEP_US if point.is_whole else None for point in points
        ]

    def quantile(place: int) -> list[float | None]:
        return [
            point.latencies[place] / 1e6 if point.latencies and point.is_whole else None
            for point in points
        ]

    return JSONResponse(
        {
            "at": [point.at_us // 1_000_000 for point in points],
            "done": rates("done"),
            "failed": rates("failed"),
            "p50": quantile(0),
            "p95": quantile(1),
            "p99": quantile(2),
            "ready": [point.ready for point in points],
        }
    )


ROUTES = [Route("/", overview), Route("/series.json", series)]
