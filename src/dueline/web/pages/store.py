"""The store: what it guarantees, the checks of `dueline doctor`, and what operators did."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dueline.web.rendering import render
from dueline.web.site import site_of


def store(request: Request) -> Response:
    """Show facts of the store, and what the checks found."""
    return render(request, "store.html", report=site_of(request).report())


def actions(request: Request) -> Response:
    """Show what operators did."""
    return render(request, "audit.html", actions=site_of(request).admin.actions(limit=200))


ROUTES = [Route("/store", store), Route("/audit", actions)]
