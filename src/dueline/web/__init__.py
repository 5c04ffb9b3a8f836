"""The dashboard: pages that show and steer a store."""

from dueline.web.dashboard import dashboard
from dueline.web.security import Identity

__all__ = ["Identity", "dashboard"]
