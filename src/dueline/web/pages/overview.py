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
        ready=sum(one.ready for one in counts),
        running=sum(one.running for one in counts),
        waiting=sum(one.scheduled + one.retrying for one in counts),
        dead=sum(one.dead for one in counts),
        is_capped=any(one.is_capped for one in counts),
        oldest_us=min((one.oldest_ready_us for one in counts if one.oldest_ready_us), default=0),
        held=sum(one.held for one in picture.workers),
        slots=sum(one.slots for one in picture.workers),
        unserved=[one.queue for one in counts if one.ready and not one.workers],
        unknown=sorted({task for some in picture.unknown.values() for task in some}),
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
        return [getattr(one, name) * 1e6 / STEP_US if one.is_whole else None for one in points]

    def quantile(place: int) -> list[float | None]:
        return [
            one.latencies[place] / 1e6 if one.latencies and one.is_whole else None for one in points
        ]

    return JSONResponse(
        {
            "at": [one.at_us // 1_000_000 for one in points],
            "done": rates("done"),
            "failed": rates("failed"),
            "p50": quantile(0),
            "p95": quantile(1),
            "p99": quantile(2),
            "ready": [one.ready for one in points],
        }
    )


ROUTES = [Route("/", overview), Route("/series.json", series)]
