"""The application for INSTALLED_APPS."""

from collections.abc import Iterator

from django.apps import AppConfig, apps
from django.db.models.signals import post_migrate
from django.utils.module_loading import module_has_submodule

from dueline.contrib.django.backend import DuelineBackend
from dueline.contrib.django.contract import task_backends
from dueline.contrib.django.test_runs import empty, follow_test_runs


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
        follow_test_runs(lambda: (backend.app for backend in _backends()))


def _backends() -> Iterator[DuelineBackend]:
    for alias in task_backends.settings:
        backend = task_backends[alias]
        if isinstance(backend, DuelineBackend):
            yield backend


def migrate_stores(*, using: str, **sent: object) -> None:
    """Create or update the tables of stores in a database that `manage.py migrate` changes.

    Django sends the same signal, without a plan, when `TransactionTestCase` empties a database.
    """
    for backend in _backends():
        app = backend.app
        if app.is_tested and "plan" not in sent and app.database in (None, using):
            empty(app)
        if app.database == using:
            app.migrate()
