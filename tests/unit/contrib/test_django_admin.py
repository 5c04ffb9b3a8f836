"""The admin pages of Django: lists, filters, one job, and changes by permission (A9)."""

from collections.abc import Iterator

import pytest

pytest.importorskip("django")

from django.core.management import call_command
from django.test import Client

from dueline.api.raw_queue import RawQueue
from dueline.contrib.django import contract
from dueline.contrib.django.backend import DuelineBackend
from dueline.core.clock import SystemClock
from tests.harness.django_site import tasks

from django.contrib.auth.models import Permission, User  # isort: skip  # after the settings

LIST = "/admin/dueline/job/"


@pytest.fixture(scope="module", autouse=True)
def tables() -> None:
    call_command("migrate", verbosity=0)


@pytest.fixture
def backend() -> Iterator[DuelineBackend]:
    """The backend, on a store of its own."""
    found = contract.task_backends["default"]
    with found.app.switched("memory://", clock=SystemClock()):
        yield found


def client_of(*names: str) -> Client:
    """Log in a user of the admin pages with these permissions."""
    User.objects.filter(username="ann").delete()
    user = User.objects.create_user("ann", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    client = Client(enforce_csrf_checks=False)
    client.force_login(user)
    return client


def shown(client: Client, query: str = "", path: str = LIST, status: int = 200) -> str:
    response = client.get(path + (f"?{query}" if query else ""))
    assert response.status_code == status, response.content[-2000:]
    return str(response.content.decode())


def change(client: Client, action: str, *ids: str, path: str = LIST, **more: str) -> str:
    response = client.post(path, {"action": action, "job": list(ids), **more}, follow=True)
    assert response.status_code == 200, response.content[-2000:]
    return str(response.content.decode())


def test_jobs_are_listed_and_filtered(backend: DuelineBackend) -> None:
    failed, ready = tasks.refuse.enqueue(), tasks.add.using(priority=1).enqueue(1)
    backend.app.job(ready.id).reschedule(after=60)
    backend.app.run_worker(burst=True)
    client = client_of("view_job")
    assert ready.id in shown(client)
    assert failed.id not in shown(client)
    dead = shown(client, "q=state:dead")
    assert failed.id in dead
    assert "RefusedError: not today" in dead
    assert ready.id not in shown(client, "q=queue:default+task:nothing")
    assert "is not a word of a filter" in shown(client, "q=wrong:word")
    assert 'name="action"' not in dead


def test_pages_follow_each_other(backend: DuelineBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dueline.contrib.django.admin.JOBS_SHOWN", 2)
    ids = {tasks.add.enqueue(number).id for number in range(3)}
    client = client_of("view_job")
    first = shown(client)
    after = first.partition("after=")[2].partition('"')[0]
    assert after
    second = shown(client, f"after={after}")
    assert sum(job_id in first for job_id in ids) == 2
    assert sum(job_id in second for job_id in ids) == 1


def test_a_job_has_a_page(backend: DuelineBackend) -> None:
    failed = tasks.refuse.enqueue()
    done = tasks.add.enqueue(41)
    backend.app.run_worker(burst=True)
    client = client_of("view_job")
    page = shown(client, path=f"{LIST}{failed.id}/change/")
    assert "RefusedError: not today" in page
    assert "Traceback" in page
    assert "42" in shown(client, path=f"{LIST}{done.id}/change/")
    assert "<button" not in page.partition('id="content-main"')[2]
    shown(client, path=f"{LIST}{'0' * 32}/change/", status=404)
    shown(client, path=f"{LIST}zzz/change/", status=404)


def test_jobs_are_retried_cancelled_and_deleted(backend: DuelineBackend) -> None:
    first, second = tasks.refuse.enqueue(), tasks.refuse.enqueue()
    backend.app.run_worker(burst=True)
    client = client_of("view_job", "change_job", "delete_job")
    assert "Jobs retried: 1." in change(client, "retry", first.id)
    assert backend.app.job(first.id).status == "ready"
    assert "Jobs cancelled: 1." in change(client, "cancel", first.id, second.id)  # second is dead
    assert "left as they are" in change(client, "cancel", second.id)
    assert backend.app.job(first.id).status == "cancelled"
    asked = change(client, "delete", second.id)
    assert second.id in asked
    assert backend.app.job(second.id).status == "dead"
    assert "Jobs deleted: 1." in change(client, "delete", second.id, confirmed="yes")
    assert {action.what for action in backend.app.admin.actions()} >= {"retry", "cancel", "delete"}
    assert {action.who for action in backend.app.admin.actions()} == {"django:ann"}


def test_one_job_is_changed_on_its_page(backend: DuelineBackend) -> None:
    result = tasks.refuse.enqueue()
    backend.app.run_worker(burst=True)
    client = client_of("view_job", "change_job", "delete_job")
    path = f"{LIST}{result.id}/change/"
    page = shown(client, path=path)
    assert 'value="retry"' in page
    assert 'value="delete"' in page
    assert 'value="cancel"' not in page
    assert "Jobs retried: 1." in change(client, "retry", path=path)
    assert backend.app.job(result.id).status == "ready"


def test_a_done_task_runs_again_with_its_arguments(backend: DuelineBackend) -> None:
    done = tasks.add.enqueue(20, second=22)
    backend.app.run_worker(burst=True)
    client = client_of("view_job", "change_job")
    page = shown(client, path=f"{LIST}{done.id}/change/")
    assert "[20, {&#x27;second&#x27;: 22}]" in page
    assert "<code>42</code>" in page
    assert 'value="run again"' in page
    assert "Jobs enqueued again: 1." in change(client, "run again", done.id, "0" * 32)
    (job,) = backend.app.admin.list("state:ready").jobs
    backend.app.run_worker(burst=True)
    assert backend.get_result(job.id).return_value == 42
    assert backend.app.admin.actions()[0].what == "run again"


def test_a_job_of_dueline_runs_again_if_its_arguments_are_kept(backend: DuelineBackend) -> None:
    backend.app.queue("default", history="arguments")
    backend.app.task(name="plain")(lambda: 1)
    plain = backend.app.send("plain")
    backend.app.run_worker(burst=True)
    client = client_of("view_job", "change_job")
    assert "Jobs enqueued again: 1." in change(client, "run again", plain.id)
    assert backend.app.admin.count("state:ready").jobs == 1


def test_changes_need_their_permissions(backend: DuelineBackend) -> None:
    result = tasks.add.enqueue(1)
    for names, action in (
        ((), ""),
        (("view_job",), "cancel"),
        (("view_job", "delete_job"), "cancel"),
        (("view_job", "change_job"), "delete"),
        (("view_job", "change_job", "delete_job"), "explode"),
    ):
        client = client_of(*names)
        sent = {"action": action, "job": [result.id]}
        for path in (LIST, f"{LIST}{result.id}/change/"):
            response = client.post(path, sent) if action else client.get(path)
            assert response.status_code == 403
    assert backend.app.job(result.id).status == "ready"
    assert client_of("view_job").get(f"{LIST}add/").status_code == 404


def test_a_running_job_is_asked_to_stop(backend: DuelineBackend) -> None:
    result = tasks.add.enqueue(1)
    RawQueue(backend.app, "default").claim(1)
    client = client_of("change_job")
    assert "asked to stop: 1." in change(client, "cancel", result.id)


def test_only_backends_of_dueline_have_pages(backend: DuelineBackend) -> None:
    shown(client_of("view_job"), "backend=other", status=404)
    assert backend.alias == "default"


def test_the_index_links_the_jobs() -> None:
    assert LIST in shown(client_of("view_job"), path="/admin/")
