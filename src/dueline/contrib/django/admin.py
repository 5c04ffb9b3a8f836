"""An admin page that shows queues and jobs."""

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest
from django.template.response import TemplateResponse

from dueline.admin.search import JobFilter, search
from dueline.contrib.django.backend import DuelineBackend
from dueline.contrib.django.contract import InvalidTaskBackend, task_backends
from dueline.contrib.django.models import Job
from dueline.contrib.django.results import time_of
from dueline.core.attempt import read_epitaph
from dueline.core.job_status import status_of
from dueline.core.lane import living_queue
from dueline.jobs.counts import count

STATES = ("ready", "running", "scheduled", "retrying", "dead")
JOBS_SHOWN = 100


@admin.register(Job)
class JobAdmin(admin.ModelAdmin):
    """Shows the queues of a backend, and jobs in one state: `?state=dead&backend=default`."""

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002  (Django's name)
        """Return False: tasks enqueue jobs."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:  # noqa: ARG002
        """Return False: the command `dueline jobs` changes jobs."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:  # noqa: ARG002
        """Return False, as for changes."""
        return False

    def changelist_view(
        self, request: HttpRequest, extra_context: Mapping[str, Any] | None = None
    ) -> TemplateResponse:
        """Show queues and jobs."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            backend = task_backends[request.GET.get("backend", "default")]
        except InvalidTaskBackend as error:
            raise Http404(str(error)) from error
        state = request.GET.get("state", "dead")
        if not isinstance(backend, DuelineBackend) or state not in STATES:
            raise Http404("There is no such backend of dueline, or no such state.")
        engine, workers = backend.app.engine, backend.app.admin.workers()
        now_us = engine.time.latest_us()
        found = search(engine, JobFilter(state=state), limit=JOBS_SHOWN)
        context = {
            **self.admin_site.each_context(request),
            "title": "Background jobs",
            "opts": self.opts,
            "queues": [count(engine, name, workers) for name in engine.catalog.names()],
            "states": STATES,
            "state": state,
            "more": found.more,
            "jobs": [
                {
                    "id": job.id.hex(),
                    "state": status_of(job, now_us),
                    "task": job.task,
                    "queue": living_queue(job.lane.queue),
                    "at": time_of(job.at_us),
                    "error": read_epitaph(job.error)[0],
                }
                for job in found.jobs
            ],
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/dueline/jobs.html", context)
