"""The dashboard and the HTTP API: pages and operations that show and steer a store."""

from dueline.core.extras import extra

with extra("web"):
    from dueline.web.dashboard import dashboard
    from dueline.web.http_api.application import api
    from dueline.web.security import Identity

__all__ = ["Identity", "api", "dashboard"]
