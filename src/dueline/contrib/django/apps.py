"""The application for INSTALLED_APPS."""

from collections.abc import Iterator

from django.apps import AppConfig, apps
from django.db.models.signals import post_migrate
from django.utils.module_loading import module_has_submodule

from dueline.contrib.django.backend import DuelineBackend
from dueline.contrib.django.contract import task_backends


class DuelineConfig(AppConfig):
    """Makes the modules called `tasks` of all installed applications known to workers."""

    name = "dueline.contrib.django"
    label = "dueline"
    verbose_name = "Background jobs"

    def ready(self) -> None:
        """Include the modules; they are imported when a worker starts."""
        names = [
            f"{config.name}.tasks"
            for config in apps.get_app_configs()
            if module_has_submodule(config.module, "tasks")
        ]
        for backend in _backends():
            backend.app.include(*names)
        post_migrate.connect(migrate_stores, sender=self)


def _backends() -> Iterator[DuelineBackend]:
    for alias in task_backends.settings:
        backend = task_backends[alias]
        if isinstance(backend, DuelineBackend):
            yield backend


def migrate_stores(*, using: str, **_: object) -> None:
    """Create or update the tables of stores in a database that `manage.py migrate` changes."""
    for backend in _backends():
        if backend.app.database == using:
            backend.app.migrate()
