"""Streams: lag by group and shard."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dueline.web.drawing import heat
from dueline.web.rendering import render
from dueline.web.site import site_of


def streams(request: Request) -> Response:
    """Show all streams with their groups, and the lag of each shard."""
    found = [(one, heat(one)) for one in site_of(request).admin.streams()]
    return render(request, "streams.html", streams=found)


ROUTES = [Route("/streams", streams)]
