"""What a store holds, for people and programs: `app.admin`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from dueline.admin.dead_letters import DeadGroups, dead_groups
from dueline.admin.filters import parse_filter
from dueline.admin.functions import FunctionPage, function_of, function_page
from dueline.admin.health import Report, examine
from dueline.admin.id_prefixes import find_id, is_prefix
from dueline.admin.job_lists import Count, count_jobs, list_jobs
from dueline.admin.job_views import CALLS_SHOWN, JobDetails, JobPage, details_of
from dueline.admin.limit_views import METERS_MAX, LimitSummary
from dueline.admin.operations import Action, Operations, actions
from dueline.admin.redrives import Redrive, redrives
from dueline.admin.schedule_runs import ScheduleRun, last_run
from dueline.admin.search import JobFilter
from dueline.admin.stream_views import StreamSummary, all_streams, stream_named
from dueline.admin.task_views import TaskSummary, task_summaries
from dueline.admin.timeline import Timeline, timeline
from dueline.admin.trend_lines import Trend, trend_named
from dueline.admin.watch import Picture, Watch
from dueline.coordination import worker_requests
from dueline.coordination.worker_registry import Presence, live_workers
from dueline.coordination.worker_requests import WorkerAnswer
from dueline.core.actor import Actor, actor_of
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, NotFound
from dueline.core.job import JobId
from dueline.core.pagination import at_once, parts_of
from dueline.core.queue_settings import QueueSettings
from dueline.durable.call_details import CalledJob, WholeCall, jobs_of_gather, whole_call
from dueline.durable.windows import Window
from dueline.foresight.alert_monitor import raised_alerts
from dueline.foresight.alerts import Alert
from dueline.foresight.trends import WorkerStart, worker_starts
from dueline.foresight.until import explain_until
from dueline.jobs.circuit_records import Circuit, open_in
from dueline.jobs.counts import Counts
from dueline.jobs.explanation import Explanation
from dueline.jobs.queue import Queues
from dueline.jobs.shard_status import Shard, shards_of
from dueline.limits import rate
from dueline.limits.semaphore import CAPACITY_DEFAULT
from dueline.limits.usage import (
    rate_usages_of,
    semaphores,
    usages_of,
)
from dueline.schedules import scheduler
from dueline.schedules.schedule import Schedule, coming
from dueline.streams.event_explanation import EventDetails, explain_event
from dueline.workflows import records
from dueline.workflows.status import StepStatus, step_statuses
from dueline.workflows.workflow import FlowProgress, WorkflowView

READ_MAX = 20_000
"""Maximum number of jobs that a list or a count reads."""

READ_US_MAX = 150_000
"""Time in microseconds after which a list or a count reads no further page."""


WORKFLOWS_READ_MAX = 1_000
"""Maximum number of workflows that one page of a search reads."""


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """A queue: its counts and settings, and how many of its jobs were done in the last minute."""

    name: str
    counts: Counts
    settings: QueueSettings
    done_in_a_minute: int


@dataclass(frozen=True, slots=True)
class ScheduleSummary:
    """A schedule and its next occurrences, in microseconds UTC."""

    name: str
    schedule: Schedule
    next_us: Sequence[int]
    has_ended: bool = False


@dataclass(frozen=True, slots=True)
class WorkflowSummary:
    """A workflow in a list."""

    id: str
    name: str
    state: str
    progress: FlowProgress
    started_us: int


@dataclass(frozen=True, slots=True)
class WorkflowPage:
    """A page of workflows; pass `next` as `after` to read on, None at the end."""

    workflows: Sequence[WorkflowSummary]
    next: int | None


@dataclass(frozen=True, slots=True)
class WorkflowDetails:
    """A workflow, its steps, and the id of the job of each step."""

    summary: WorkflowSummary
    view: WorkflowView
    steps: Sequence[StepStatus]
    jobs: Sequence[str]


class Admin:
    """Read models of a store: what people and programs want to know.

    Reads are bounded, in rows and in time: a value that is not complete says so. Filters are
    strings such as `task:shop.mail state:dead priority>3`, see `parse_filter`.

    Args:
        queues: The queues of the store.
    """

    def __init__(self, queues: Queues) -> None:
        self._queues = queues

    @property
    def engine(self) -> Engine:
        """The store, clock and catalog."""
        return self._queues.engine

    @cached_property
    def watch(self) -> Watch:
        """Pictures of the store, which share what they read."""
        return Watch(self.engine)

    def operations(self, who: str | Actor) -> Operations:
        """Return the changes that an operator can make; each is recorded.

        Args:
            who: Name of the operator, for the record and the history of jobs.
        """
        actor = who if isinstance(who, Actor) else actor_of(who, "code")
        return Operations(self._queues, actor)

    # Jobs

    def filter(self, text: str) -> JobFilter:
        """Return the filter that a string describes.

        Args:
            text: The filter.

        Raises:
            BadInput: It cannot be read.
        """
        return parse_filter(text, self.engine.time.latest_us())

    def list(
        self,
        filter: str | JobFilter = "",  # noqa: A002  (its name in the command line and the URL)
        *,
        limit: int = 50,
        after: str | None = None,
        most: int = READ_MAX,
    ) -> JobPage:
        """List jobs by time; dead ones, and ended ones from the history, the latest first.

        Expired jobs that no worker has ended yet come before those in the history.

        Args:
            filter: Which jobs; without a state, those that wait or run.
            limit: Maximum number of jobs.
            after: `next` of the page before.
            most: Maximum number of jobs that are read.

        Raises:
            BadInput: The filter or `after` cannot be read.
            NotFound: The queue does not exist.
        """
        like = self.filter(filter) if isinstance(filter, str) else filter
        return list_jobs(
            self.engine, like, limit=limit, most=most, after=after, within_us=READ_US_MAX
        )

    def count(self, filter: str | JobFilter = "", *, most: int = READ_MAX) -> Count:  # noqa: A002
        """Count the jobs that match a filter.

        Args:
            filter: Which jobs, as in `list`.
            most: Maximum number of jobs that are read.

        Raises:
            BadInput: The filter cannot be read.
            NotFound: The queue does not exist.
        """
        like = self.filter(filter) if isinstance(filter, str) else filter
        return count_jobs(self.engine, like, most=most, within_us=READ_US_MAX)

    def get(self, job_id: str) -> JobDetails:
        """Return all that is stored of a job; of a durable function the last 100 calls.

        Args:
            job_id: Its id, or the first digits.

        Raises:
            BadInput: It is not an id, or several jobs have these digits.
            NotFound: Nothing is stored of the job.
        """
        return details_of(self._queues, self._id(job_id), Window(CALLS_SHOWN))

    def explain(self, job_id: str, *, within_us: int | None = None) -> Explanation:
        """Return what must change before a job can start.

        Args:
            job_id: Its id, or the first digits.
            within_us: A duration in microseconds: also say whether the job starts within it, and
                what would start it by then.
        """
        return explain_until(self._queues, self._id(job_id), within_us)

    def _id(self, text: str) -> JobId:
        digits = text.strip().lower().replace("-", "")
        if is_prefix(digits):
            return find_id(self.engine, digits)
        try:
            raw_id = bytes.fromhex(digits)
        except ValueError:
            raw_id = b""
        if len(raw_id) != len(_NO_ID):
            raise BadInput(f"{text!r:.80} is not a job id.", hint="Use 32 hexadecimal digits.")
        return JobId(raw_id)

    def dead_letters(self) -> DeadGroups:
        """Return the dead-letter jobs, grouped by task and error."""
        return dead_groups(self.engine)

    def redrives(self) -> Sequence[Redrive]:
        """Return the paced redrives of the last days, the latest first."""
        return redrives(self.engine)

    # Queues and workers

    def stats(self, *, max_age: float = 1) -> Picture:
        """Return counts, throughput, start latency and workers.

        Args:
            max_age: Maximum age of the picture, in seconds.
        """
        return self.watch.look(max_age_us=round(max_age * SECOND_US))

    def timeline(self) -> Timeline:
        """Return how many jobs are due when, from an hour ago to a day ahead."""
        return timeline(self.engine)

    def queues(self, *, max_age: float = 1) -> Sequence[QueueSummary]:
        """Return all queues.

        Args:
            max_age: Maximum age of the counts, in seconds.
        """
        picture = self.stats(max_age=max_age)
        return [
            QueueSummary(
                count.queue,
                count,
                self.engine.catalog.settings(count.queue),
                picture.rates.get(count.queue, 0),
            )
            for count in picture.counts
        ]

    def circuits(self, queue: str) -> Mapping[str, Circuit]:
        """Return the tasks of a queue that are paused by themselves, since they failed.

        Args:
            queue: Name of the queue.
        """
        return open_in(self.engine.store, queue)

    def shards(self, queue: str) -> Sequence[Shard]:
        """Return the status of the shards of a queue.

        Args:
            queue: Name of the queue.

        Raises:
            NotFound: There is no such queue.
        """
        self.engine.catalog.chosen(queue)
        return shards_of(self.engine, queue)

    def tasks(self, *, max_age: float = 1) -> Sequence[TaskSummary]:
        """Return the tasks that ran in the last days or that live workers know, by name.

        Args:
            max_age: Maximum age of the last failures, in seconds.
        """
        picture = self.stats(max_age=max_age)
        dead = self.dead_letters().groups
        return task_summaries(self.engine, picture.workers, picture.failures, dead)

    def trend(self, name: str) -> Trend:
        """Return what the store did in steps, as the maintenance leader recorded it.

        Args:
            name: The period: "1h", "24h" or "7d".

        Raises:
            BadInput: There is no such period.
        """
        return trend_named(self.engine, name)

    def starts(self) -> Sequence[WorkerStart]:
        """Return when workers started in the last week, the oldest first."""
        return worker_starts(self.engine.store)

    def alerts(self) -> Sequence[Alert]:
        """Return the alerts that are raised, by queue."""
        return raised_alerts(self.engine)

    def workers(self) -> Sequence[Presence]:
        """Return the workers that are alive."""
        return live_workers(self.engine)

    def worker_answers(self) -> Mapping[str, WorkerAnswer]:
        """Return what workers answered to operators in the last minute, by worker."""
        return worker_requests.answers(self.engine.store)

    def health(self, *, compare_s: float = 1, most: int = 1_000) -> Report:
        """Check the store, clocks, workers and queues, as `dueline doctor` does.

        Args:
            compare_s: Maximum duration of comparing indexes with tables, in seconds.
            most: Maximum number of jobs of each queue that a check reads.
        """
        return examine(self.engine, compare_us=round(compare_s * SECOND_US), most=most)

    # Schedules, limits, workflows, streams

    def schedules(self, *, occurrences: int = 1) -> Sequence[ScheduleSummary]:
        """Return all schedules by name.

        Args:
            occurrences: Number of next occurrences.
        """
        now_us = self.engine.time.latest_us()
        return [
            ScheduleSummary(
                schedule.name,
                schedule.schedule,
                coming(schedule.schedule, now_us, occurrences),
                schedule.schedule.has_ended(now_us),
            )
            for schedule in scheduler.all_schedules(self.engine)
        ]

    def last_runs(self) -> Mapping[str, ScheduleRun]:
        """Return the last run of each schedule of which one is known, by name."""
        now_us = self.engine.time.latest_us()
        runs = {
            name: last_run(self._queues, schedule, now_us)
            for name, schedule, _ in scheduler.all_schedules(self.engine)
        }
        return {name: run for name, run in runs.items() if run is not None}

    def limits(self) -> Sequence[LimitSummary]:
        """Return all semaphores with their holders, and all rates."""
        limits = [
            LimitSummary(
                name,
                CAPACITY_DEFAULT if setting is None else setting.capacity,
                setting is not None,
                usages_of(self.engine, name),
                setting=setting,
            )
            for name, setting in semaphores(self.engine).items()
        ]
        for name, limit in rate.rates(self.engine.store).items():
            meters = rate_usages_of(self.engine, name, limit, most=METERS_MAX)
            limits.append(LimitSummary(name, limit.most, is_set=True, rate=limit, meters=meters))
        return limits

    def workflows(
        self, *, limit: int = 50, after: int = 0, state: str | None = None, name: str = ""
    ) -> WorkflowPage:
        """Return workflows, the newest first.

        Args:
            limit: Maximum number of workflows.
            after: `next` of the page before.
            state: Only those in this state: running, done, failed or cancelled.
            name: Only those whose names have this part.
        """
        listed = islice(records.listed(self.engine.store), after, None)
        read = 0
        shown: list[WorkflowSummary] = []
        for part in parts_of(listed, limit):
            if len(shown) == limit or read >= WORKFLOWS_READ_MAX:
                return WorkflowPage(shown, after + read)
            named = [flow for flow, its_name in part if name in its_name]
            views = dict(zip(named, at_once(self.engine.store, self._workflow, named), strict=True))
            for flow, _ in part:
                if len(shown) == limit:
                    return WorkflowPage(shown, after + read)
                read += 1
                workflow = views.get(flow)
                if workflow is not None and state in (None, workflow[0].state):
                    shown.append(workflow[0])
        return WorkflowPage(shown, None)

    def functions(
        self, *, limit: int = 50, after: int = 0, state: str | None = None, name: str = ""
    ) -> FunctionPage:
        """Return durable functions that have begun, the newest first.

        Args:
            limit: Maximum number of functions.
            after: `next` of the page before.
            state: Only those in this state, such as waiting or stopped.
            name: Only those of tasks whose names have this part.

        Raises:
            BadInput: No function can be in this state.
        """
        return function_page(self.engine, limit=limit, after=after, state=state, name=name)

    def function(self, job_id: str, *, to: int = 0, most: int = CALLS_SHOWN) -> JobDetails:
        """Return a durable function with some of its calls.

        Args:
            job_id: Its id, or the first digits.
            to: The last call that is returned; 0 for the last one of all.
            most: Maximum number of calls.

        Raises:
            BadInput: As `get`.
            NotFound: Nothing is stored of the job, or it is of another kind.
        """
        return function_of(self._queues, self._id(job_id), Window(most, to))

    def call(self, job_id: str, position: int) -> WholeCall:
        """Return a call of a durable function, with its whole value.

        Args:
            job_id: Id of the function.
            position: Position of the call.

        Raises:
            NotFound: Nothing is recorded of it.
        """
        own = self._id(job_id)
        return whole_call(self.engine.store, own, self.engine.store.find([own])[0], position)

    def called_jobs(
        self, job_id: str, position: int, *, after: int = 0, limit: int = 50
    ) -> Sequence[CalledJob]:
        """Return jobs that a gather of a durable function called, in their order.

        Args:
            job_id: Id of the function.
            position: Position of the gather.
            after: Number of jobs that are left out.
            limit: Maximum number of jobs.
        """
        own, now_us = self._id(job_id), self.engine.time.latest_us()
        row = self.engine.store.find([own])[0]
        return jobs_of_gather(
            self.engine.store, own, row, position, after=after, limit=limit, now_us=now_us
        )

    def workflow(self, flow_id: str) -> WorkflowDetails:
        """Return a workflow and the states of its steps.

        Args:
            flow_id: Its id.

        Raises:
            BadInput: It is not an id.
            NotFound: The workflow does not exist, or has expired.
        """
        flow = self._id(flow_id)
        workflow = self._workflow(flow)
        if workflow is None:
            raise NotFound(f"There is no workflow {flow.hex()}.", hint="Workflows expire.")
        summary, view = workflow
        steps = step_statuses(self.engine, view)
        jobs = [records.job_of(flow, step.step).hex() for step in steps]
        return WorkflowDetails(summary, view, steps, jobs)

    def _workflow(self, flow: JobId) -> tuple[WorkflowSummary, WorkflowView] | None:
        try:
            view = WorkflowView(self.engine, flow)
        except NotFound:  # deleted meanwhile
            return None
        layout = view.layout
        summary = WorkflowSummary(
            flow.hex(), layout.name, view.status(), view.progress(), layout.started_us
        )
        return summary, view

    def streams(self) -> Sequence[StreamSummary]:
        """Return all streams with their groups and the lag of each shard."""
        return all_streams(self.engine)

    def stream(self, name: str, *, events: int = 0) -> StreamSummary:
        """Return a stream with its groups, the lag of each shard, and its newest events.

        Args:
            name: Its name.
            events: Maximum number of events.

        Raises:
            NotFound: There is no such stream.
        """
        return stream_named(self.engine, name, events)

    def explain_event(self, stream: str, event: str) -> EventDetails:
        """Return what became of an event: which groups it reaches, and what it waits for.

        Args:
            stream: Name of the stream; that of topics is `topics`.
            event: The id of the event, or its position.

        Raises:
            BadInput: This is neither an id nor a position.
            NotFound: The stream or the event does not exist.
        """
        return explain_event(
            self.engine, stream, event, lambda job_id: explain_until(self._queues, job_id, None)
        )

    def actions(self, *, limit: int = 100) -> Sequence[Action]:
        """Return what operators did, the latest first.

        Args:
            limit: Maximum number of actions.
        """
        return actions(self.engine.store, limit=limit)


_NO_ID = bytes(16)
