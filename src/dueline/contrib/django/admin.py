"""Admin pages: the queues of a backend and its jobs, one job, and changes of jobs."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.http import urlencode

from dueline.admin.filters import STATES, with_state
from dueline.admin.job_views import JobDetails, JobSummary
from dueline.admin.operations import recorded
from dueline.api.job_handle import parse_id
from dueline.contrib.django.backend import DuelineBackend
from dueline.contrib.django.contract import InvalidTaskBackend, task_backends
from dueline.contrib.django.models import Job
from dueline.contrib.django.results import Call, read_call, time_of
from dueline.core.actor import Actor, actor_of
from dueline.core.errors import BadInput, NotFound
from dueline.core.job import JobId
from dueline.jobs.bulk import BulkResult

JOBS_SHOWN = 100


class Action(NamedTuple):
    """A change of selected jobs: its label, the permission it needs, and what it says after."""

    label: str
    permission: str
    said: str
    states: Sequence[str]

    def is_for(self, job: JobSummary) -> bool:
        """Return whether jobs in this state can be changed so."""
        return job.state in self.states


ACTIONS: Mapping[str, Action] = {
    "retry": Action("Retry", "change", "retried", ("dead", "retrying", "scheduled")),
    "cancel": Action(
        "Cancel", "change", "cancelled", ("ready", "scheduled", "retrying", "paused", "running")
    ),
    "run again": Action("Run again", "change", "enqueued again", ("done", "cancelled", "lost")),
    "delete": Action("Delete", "delete", "deleted", ("dead",)),
}


@admin.register(Job)
class JobAdmin(admin.ModelAdmin):
    """Lists the jobs of a backend by a filter, shows a job, and changes jobs.

    Addresses: `?q=state:dead queue:mail&backend=default`, and `<id>/change/` for one job.
    """

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002  (Django's name)
        """Return False: tasks enqueue jobs."""
        return False

    def get_urls(self) -> list[URLPattern]:
        """Return the addresses of the list and of one job."""
        view = self.admin_site.admin_view
        return [
            path("", view(self.changelist_view), name="dueline_job_changelist"),
            path("<job_id>/change/", view(self.job_view), name="dueline_job_change"),
        ]

    def changelist_view(
        self, request: HttpRequest, extra_context: Mapping[str, Any] | None = None
    ) -> HttpResponse:
        """Show queues and jobs, or change the selected ones."""
        backend = self._backend(request)
        text = request.GET.get("q", "").strip()
        if request.method == "POST":
            return self._change(
                request, backend, request.POST.getlist("job"), request.get_full_path()
            )
        model = backend.app.admin
        page, error = None, ""
        try:
            page = model.list(text, limit=JOBS_SHOWN, after=request.GET.get("after"))
        except (BadInput, NotFound) as wrong:
            error = str(wrong)
        like = None if error else model.filter(text)
        shown = {
            "title": "Background jobs",
            "counts": [summary.counts for summary in model.queues()],
            "error": error,
            "filter": text,
            "tabs": [(state or "unfinished", with_state(text, state)) for state in (None, *STATES)],
            "state": (like.state or "unfinished") if like else None,
            "jobs": [(job, time_of(job.ended_us or job.at_us)) for job in page.jobs]
            if page
            else (),
            "next": page.next if page else None,
            "actions": self._actions(request),
        }
        return self._render(request, backend, "jobs.html", shown | dict(extra_context or {}))

    def job_view(self, request: HttpRequest, job_id: str) -> HttpResponse:
        """Show one job, or change it."""
        backend = self._backend(request)
        if request.method == "POST":
            return self._change(request, backend, [job_id], request.get_full_path())
        model = backend.app.admin
        try:
            details = model.get(job_id)
        except (BadInput, NotFound) as error:
            raise Http404(str(error)) from error
        job, call = details.summary, read_call(details.result)
        timestamps = [
            ("Enqueued", job.enqueued_us), ("Due", job.due_us), ("Started", job.started_us),
            ("Ended", job.ended_us),
        ]  # fmt: skip
        shown = {
            "title": f"Job {job.id}",
            "job": job,
            "details": details,
            "arguments": _arguments_of(details, call),
            "result": details.result if call is None else call.value,
            "times": [(name, time_of(at_us)) for name, at_us in timestamps if at_us],
            "attempts": [(attempt, time_of(attempt.ended_us)) for attempt in details.attempts],
            "explanation": None if job.state == "done" else model.explain(job.id),
            "actions": {
                name: label
                for name, label in self._actions(request).items()
                if ACTIONS[name].is_for(job)
                and (name != "run again" or details.has_call or call is not None)
            },
        }
        return self._render(request, backend, "job.html", shown)

    def _backend(self, request: HttpRequest) -> DuelineBackend:
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            backend = task_backends[request.GET.get("backend", "default")]
        except InvalidTaskBackend as error:
            raise Http404(str(error)) from error
        if not isinstance(backend, DuelineBackend):
            raise Http404("This backend is not one of dueline.")
        return backend

    def _actions(self, request: HttpRequest) -> dict[str, str]:
        """Return the labels of the changes that the user may make, by name."""
        return {
            name: action.label
            for name, action in ACTIONS.items()
            if getattr(self, f"has_{action.permission}_permission")(request)
        }

    def _change(
        self, request: HttpRequest, backend: DuelineBackend, ids: Sequence[str], place: str
    ) -> HttpResponse:
        """Change jobs, and go to a page that says so; deleting asks for a confirmation first."""
        what = request.POST.get("action", "")
        if what not in self._actions(request):
            raise PermissionDenied
        try:
            jobs = [parse_id(text) for text in ids]
        except BadInput as error:
            raise Http404(str(error)) from error
        if what == "delete" and "confirmed" not in request.POST:
            shown = {"title": "Delete jobs", "ids": [job.hex() for job in jobs]}
            return self._render(request, backend, "delete.html", shown)
        who = actor_of(f"django:{request.user.get_username()}", "dashboard")
        if what == "run again":
            changed = _run_again(backend, who, jobs)
        else:
            changed = backend.app.admin.operations(who).selected(what, jobs)
        for count, said, level in (
            (changed.done, ACTIONS[what].said, messages.SUCCESS),
            (changed.asked, "running, and asked to stop", messages.SUCCESS),
            (
                changed.left,
                "left as they are, since their state does not allow it",
                messages.WARNING,
            ),
        ):
            if count:
                messages.add_message(request, level, f"Jobs {said}: {count}.")
        return HttpResponseRedirect(_list_url(backend) if what == "delete" else place)

    def _render(
        self, request: HttpRequest, backend: DuelineBackend, name: str, shown: Mapping[str, Any]
    ) -> TemplateResponse:
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "backend": backend.alias,
            "list_url": _list_url(backend),
            **shown,
        }
        return TemplateResponse(request, f"admin/dueline/{name}", context)


def _arguments_of(details: JobDetails, call: Call | None) -> object:
    """Return the arguments of a job; those of a done task are in what is kept of its call."""
    if call is None:
        return details.hidden or details.arguments
    return [*call.args, call.kwargs] if call.kwargs else call.args


def _run_again(backend: DuelineBackend, who: Actor, ids: Sequence[JobId]) -> BulkResult:
    """Enqueue calls again: those that are kept with results, else those in the history."""
    app, done = backend.app, 0
    operations = app.admin.operations(who)
    for job_id in ids:
        try:
            call = read_call(app.admin.get(job_id.hex()).result)
        except NotFound:
            continue
        known = app.known_at(call.task) if call is not None else None
        if call is None or known is None:
            done += operations.selected("run again", [job_id]).done
            continue
        with recorded(app.engine, who, "run again", job_id.hex()) as action:
            again = known.call.using(queue=call.queue, priority=call.priority)
            again.enqueue(*call.args, **call.kwargs)
            action.result = "1 jobs"
        done += 1
    return BulkResult(done=done, left=len(ids) - done)


def _list_url(backend: DuelineBackend) -> str:
    return f"{reverse('admin:dueline_job_changelist')}?{urlencode({'backend': backend.alias})}"
