"""A backend for Django's tasks, an application for INSTALLED_APPS, a worker and an admin page.

`TASKS = {"default": {"BACKEND": "dueline.contrib.django.DuelineBackend"}}` in the settings.
"""

from typing import TYPE_CHECKING, Any

from dueline.core.extras import extra

if TYPE_CHECKING:
    from dueline.contrib.django.attempt import DuelineContext
    from dueline.contrib.django.backend import DuelineBackend

__all__ = ["DuelineBackend", "DuelineContext"]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import a class when it is used: Django imports this package before its settings are read."""
    from importlib import import_module  # noqa: PLC0415  (see above)

    places = {"DuelineBackend": "backend", "DuelineContext": "attempt"}
    if name not in places:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with extra("django"):
        return getattr(import_module(f"{__name__}.{places[name]}"), name)
