"""The store's metrics, for Prometheus."""

from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dueline.web.site import site_of


def metrics(request: Request) -> Response:
    """Return what the store holds now, in the format that is asked for."""
    encode, kind = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(site_of(request).metrics()), media_type=kind)


ROUTES = [Route("/metrics", metrics)]
