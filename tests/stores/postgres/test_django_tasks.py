"""Django's tasks in Django's own database: jobs are part of its transactions (A9)."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

pytest.importorskip("django")

from django.db import connections, transaction
from django.test import override_settings

from dueline.contrib.django import contract
from dueline.contrib.django.apps import migrate_stores
from dueline.contrib.django.backend import DuelineBackend
from tests.harness import django_site
from tests.harness.django_site import tasks
from tests.harness.postgres import server_url, statement

pytestmark = pytest.mark.postgres

ALIAS = "jobs"
NAME = "django_tasks"


@pytest.fixture(scope="module")
def backend() -> Iterator[DuelineBackend]:
    """The backend in a database of its own, which is also one of Django."""
    url = server_url()
    statement(url, f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)")
    statement(url, f"CREATE DATABASE {NAME}")
    parts = urlsplit(url)
    own = {
        "ENGINE": "django.db.backends.postgresql", "NAME": NAME, "USER": parts.username,
        "PASSWORD": parts.password, "HOST": parts.hostname, "PORT": parts.port,
    }  # fmt: skip
    connections.settings |= connections.configure_settings({"default": {}, ALIAS: own})
    options = {"DATABASE": ALIAS}
    settings = {"default": {"BACKEND": django_site.BACKEND, "OPTIONS": options}}
    with override_settings(TASKS=settings):
        backend = contract.task_backends["default"]
        for alias in ("default", ALIAS):  # what `manage.py migrate` calls, for each database
            migrate_stores(using=alias)
        yield backend
        backend.app.close()
        connections[ALIAS].close()
    del connections.settings[ALIAS], connections[ALIAS]
    statement(url, f"DROP DATABASE {NAME} WITH (FORCE)")


def test_a_job_is_committed_with_the_transaction(backend: DuelineBackend) -> None:
    assert list(backend.check()) == []
    with transaction.atomic(using=ALIAS):
        result = tasks.add.enqueue(1)
        assert backend.get_result(result.id) == result  # as the transaction sees it
        backend.app.run_worker(burst=True)
        assert backend.get_result(result.id).status == "READY"
    backend.app.run_worker(burst=True)
    assert backend.get_result(result.id).return_value == 2


def test_a_job_is_rolled_back_with_the_transaction(backend: DuelineBackend) -> None:
    with transaction.atomic(using=ALIAS):
        result = tasks.add.enqueue(1)
        transaction.set_rollback(True, using=ALIAS)
    with pytest.raises(contract.TaskResultDoesNotExist):
        backend.get_result(result.id)


def test_a_task_ends_its_job_in_its_own_transaction(backend: DuelineBackend) -> None:
    connections[ALIAS].cursor().execute("CREATE TABLE orders (id int)")
    result = tasks.settle.enqueue(ALIAS, 7)
    backend.app.run_worker(burst=True)
    result.refresh()
    assert (result.status, result.return_value, result.args) == ("SUCCESSFUL", 7, [ALIAS, 7])
    cursor = connections[ALIAS].cursor()
    cursor.execute("SELECT id FROM orders")
    assert cursor.fetchall() == [(7,)]


def test_outside_a_transaction_the_job_is_stored_at_once(backend: DuelineBackend) -> None:
    result = tasks.add.enqueue(1)
    assert backend.get_result(result.id) == result
