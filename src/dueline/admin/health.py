"""Health checks of a store, its workers and queues."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from dueline.admin.bucket_widths import unfit_widths
from dueline.admin.search import JobFilter, search
from dueline.admin.store_checks import SKEW_US_MAX, judged
from dueline.admin.unreadable import unreadable_in
from dueline.coordination.failed_starts import failed_starts
from dueline.coordination.leases import holder_of
from dueline.coordination.worker_registry import Presence, live_workers
from dueline.core.check import Check, Verdict
from dueline.core.clock import SECOND_US
from dueline.core.durations import instant_text, span_text
from dueline.core.engine import Engine
from dueline.core.errors import SchemaMismatch, StoreCorrupt
from dueline.core.features import names_of
from dueline.core.job_status import ahead_of
from dueline.core.store import Delete, Put
from dueline.core.store_capabilities import ComparesIndexes
from dueline.durable.stopped import stopped_in
from dueline.foresight.alert_monitor import raised_alerts
from dueline.jobs.counts import count
from dueline.jobs.shard_status import LATE_US, neglected
from dueline.jobs.unknown_tasks import known_tasks, unknown_tasks
from dueline.limits.usage import BusyLimits, semaphores
from dueline.monitor.audit import findings
from dueline.monitor.interval import interval_text, interval_us
from dueline.schedules import scheduler
from dueline.streams.group_health import stuck_groups

PROBES = "probes"
PROBE_KEPT_US = 60 * SECOND_US

COMPARE_US = 10 * SECOND_US
"""Default time in microseconds for comparing indexes with tables."""

UNREADABLE_MAX = 100
"""Maximum number of damaged records and jobs that are named."""

SCAN_MAX = 10_000
"""Maximum number of jobs of one queue that are read to check whether workers serve it."""


SHOWN_MAX = 20
"""Maximum number of queues that are named for one reason; the others are counted."""

READY_WITHIN_US = 5 * SECOND_US
"""Default time in microseconds for checking the queues of a store."""

ELECTED_WITHIN_US = 60 * SECOND_US
"""Maximum time without a maintenance leader after workers started, or the leader was lost."""

CHECKED = ("shard", "stopped", "import")
"""Kinds of alerts for which there are checks."""

OVERDUE_US = 10 * SECOND_US
"""How long after its time a job of a schedule that is not stored is overdue."""


@dataclass(frozen=True, slots=True)
class Report:
    """The results of an examination. store: the facts that the store describes."""

    checks: Sequence[Check]
    store: Mapping[str, str]
    workers: Sequence[Presence]

    def is_bad(self) -> bool:
        """Return whether a check is bad."""
        return any(check.verdict == "bad" for check in self.checks)


def examine(engine: Engine, *, compare_us: int = COMPARE_US, most: int = SCAN_MAX) -> Report:
    """Check the store, the clocks, the workers, and whether every queue is served.

    Args: compare_us: maximum time for comparing the indexes of the store with its tables. most:
      maximum number of jobs of a queue that a check reads.
    """
    features = ", ".join(sorted(names_of(engine.store)))
    store = {**engine.store.describe(), "features": features or "none"}
    store["maintenance"] = interval_text(interval_us(engine.store))
    workers = live_workers(engine)
    checks = [
        *judged(store),
        *_indexes(engine, compare_us),
        *_unreadable(engine, most),
        _clock("this machine", engine.time.skew_us()),
        *(_clock(f"worker {worker.worker}", worker.clock_skew_us) for worker in workers),
        *(_strays(worker) for worker in workers if worker.stray_answers),
        *lost_slots(engine, workers),
        _alive(workers),
    ]
    more: Sequence[Callable[[], Iterable[Check]]] = (
        lambda: [elected(engine, workers)],
        lambda: recurring(engine, workers),
        lambda: _found_by_audits(engine),
        lambda: _written_ahead(engine, most),
        lambda: _stopped_functions(engine, "warning"),
        lambda: _failed_starts(engine, "warning"),
        lambda: _shortened(list(_alerted(engine, "warning")), "alerts"),
        lambda: _shortened(list(_unserved(engine, workers, most)), "queues"),
        lambda: _shortened(list(_undeclared(engine)), "limits"),
        lambda: _shortened(list(unfit_widths(engine, store)), "queues"),
        lambda: neglected(engine, engine.catalog.names(), workers),
        lambda: stuck_groups(engine, max_age_us=LATE_US, verdict="warning"),
    )
    for look in more:
        try:
            checks += look()
        except SchemaMismatch:
            raise
        except StoreCorrupt as error:  # the other checks continue
            checks.append(Check("store", "bad", error.message, error.hint))
    return Report(checks, store, workers)


def _indexes(engine: Engine, timeout_us: int) -> Iterator[Check]:
    """Compare the indexes of the store with its tables: a row missing in one is never claimed."""
    store = engine.store
    if not isinstance(store, ComparesIndexes):
        return
    began_us = engine.time.latest_us()
    differences = store.compare_indexes(timeout_us=timeout_us)
    took = span_text(engine.time.latest_us() - began_us)
    if differences is None:
        finding = f"not compared with their tables within {span_text(timeout_us)}"
        yield Check("indexes", "warning", finding, "Run `dueline doctor --time 10m`.")
    elif differences:
        advice = "Rebuild them, or restore a backup (docs/operations/damage.md)."
        yield Check("indexes", "bad", "; ".join(differences), advice)
    else:
        yield Check("indexes", "good", f"they agree with their tables (took {took})")


def _unreadable(engine: Engine, most: int) -> Iterator[Check]:
    for place, why, advice in islice(unreadable_in(engine, most=most), UNREADABLE_MAX):
        yield Check(place, "bad", why, advice)


def _written_ahead(engine: Engine, most: int) -> Iterator[Check]:
    """Find jobs that were written by a clock that was ahead: they wait by that clock."""
    now_us = engine.time.latest_us()
    left = most
    for name in engine.catalog.names():
        ahead_us = []
        for job in islice(engine.jobs_of(name), left):
            left -= 1
            if by_us := ahead_of(job, now_us):
                ahead_us.append(by_us)
        if ahead_us:
            yield Check(
                f"queue {name}",
                "warning",
                f"a clock that was up to {span_text(max(ahead_us))} ahead wrote {len(ahead_us)} "
                "jobs; they wait by that clock",
                "Set the clock right; `dueline jobs reschedule` brings the jobs forward.",
            )


def is_writable(engine: Engine) -> Check:
    """Check whether the store accepts a write, and returns it.

    Raises: StoreUnavailable: it cannot be reached.
    """
    version = engine.ids.token()
    expires_us = engine.time.latest_us() + PROBE_KEPT_US
    key = version.hex()
    engine.store.commit(PROBES, (Put(key, version, b"{}", expires_us=expires_us),))
    records = engine.store.read(PROBES, after=key[:-1], limit=16)  # all keys of that beginning
    engine.store.commit(PROBES, (Delete(key),))
    if any(record.key == key for record in records):
        return Check("store", "good", "it can be written")
    return Check("store", "bad", "what was written is not there", "See `dueline doctor`.")


def is_ready(engine: Engine, *, max_age_us: int, within_us: int = READY_WITHIN_US) -> list[Check]:
    """Check whether ready jobs that no pause and no limit blocks are served.

    Args:
      within_us: maximum time for checking queues; a warning says how many were checked.
    """
    names = engine.catalog.names()
    checks, checked = _late_queues(engine, names, max_age_us=max_age_us, within_us=within_us)
    checks = _shortened(checks, "queues")
    if checked < len(names):
        finding = f"{checked} of {len(names)} were checked within {span_text(within_us)}"
        advice = "Repeat the command: each time it begins with other queues."
        checks.append(Check("queues", "warning", finding, advice))
    checks += stuck_groups(engine, max_age_us=max_age_us, verdict="bad")
    checks += _overdue(engine, max_age_us, "bad")
    checks += _stopped_functions(engine, "bad", max_age_us)
    checks += _failed_starts(engine, "bad")
    checks += _shortened(list(_alerted(engine, "bad", (*CHECKED, "paused"))), "alerts")
    return checks or [Check("queues", "good", "all ready jobs are served in time")]


def _late_queues(
    engine: Engine, names: Sequence[str], *, max_age_us: int, within_us: int
) -> tuple[list[Check], int]:
    """Find queues with jobs that wait too long; also return how many were checked."""
    now_us = engine.time.latest_us()
    workers = live_workers(engine)
    served = {name for worker in workers for name in worker.queues}
    waiting = BusyLimits(engine)
    checks: list[Check] = []
    first = int.from_bytes(engine.ids.token()) % max(1, len(names))
    checked = 0
    for name in (*names[first:], *names[:first]):
        if engine.time.latest_us() - now_us > within_us:
            break
        checked += 1
        settings = engine.catalog.settings(name)
        like = JobFilter("ready", name, but=settings.paused_tenants)
        oldest = search(engine, like, limit=1, leave_out=waiting.has).jobs
        if not oldest:
            continue
        is_served = name in served and not settings.is_paused
        if is_served and (unknown := list(_unknown(engine, name, workers, now_us, "bad"))):
            checks += unknown
            continue
        age_us = now_us - oldest[0].at_us
        waits = f"the oldest ready job waits for {span_text(age_us)}"
        if settings.is_paused:
            if age_us > max_age_us:
                advice = f"Run `dueline queues resume {name}`."
                checks.append(Check(f"queue {name}", "bad", f"it is paused, and {waits}", advice))
        elif name not in served:
            checks.append(Check(f"queue {name}", "bad", f"no live worker serves it, and {waits}"))
        elif age_us > max_age_us:
            checks.append(Check(f"queue {name}", "bad", waits))
    return sorted(checks, key=lambda check: check.name), checked


def _shortened(checks: Sequence[Check], what: str) -> list[Check]:
    """Return the first checks, and one that says how many more there are."""
    left = checks[SHOWN_MAX:]
    rest = [Check(what, left[0].verdict, f"and {len(left)} more {what} like these")] if left else []
    return [*checks[:SHOWN_MAX], *rest]


def _clock(whose: str, skew_us: int) -> Check:
    name = f"clock of {whose}"
    away = f"{span_text(skew_us)} {'ahead of' if skew_us > 0 else 'behind'} the store's"
    if abs(skew_us) >= SKEW_US_MAX:
        return Check(name, "bad", away, "Have the machine keep time (NTP).")
    return Check(name, "good", "in step with the store's" if abs(skew_us) < SECOND_US else away)


def _strays(worker: Presence) -> Check:
    return Check(
        f"worker {worker.worker}",
        "warning",
        f"{worker.stray_answers} answers of the server belonged to no request of it",
        "Upgrade every node to Cassandra 5.0.9 or later, and find out why requests wait there.",
    )


def lost_slots(engine: Engine, workers: Sequence[Presence]) -> Iterator[Check]:
    """Find slots whose handlers have outlived their time limits; a worker without others is bad."""
    now_us = engine.time.latest_us()
    for worker in workers:
        if worker.lost:
            job, task, since_us = min(worker.lost, key=lambda slot: slot[2])
            lost_for = span_text(max(0, now_us - since_us))
            verdict: Verdict = "bad" if len(worker.lost) >= worker.slots else "warning"
            yield Check(
                f"worker {worker.worker}",
                verdict,
                f"{len(worker.lost)} of {worker.slots} slots are lost to handlers that have"
                f" outlived their limits: job {job}, {task}, for {lost_for}",
                "Restart it. Run such tasks with --processes, which ends them.",
            )


def _alive(workers: Sequence[Presence]) -> Check:
    held, slots = sum(worker.held for worker in workers), sum(worker.slots for worker in workers)
    finding = f"alive: {len(workers)}, jobs held: {held}, slots: {slots}"
    return Check("workers", "good", finding)


def elected(engine: Engine, workers: Sequence[Presence]) -> Check:
    """Return which worker is the maintenance leader; a warning if workers run and none is."""
    grant, now_us = holder_of(engine.store), engine.time.earliest_us()
    if grant is not None and grant.until_us > now_us:
        return Check("monitor", "good", f"{grant.holder}, epoch {grant.epoch}")
    finding = "no worker is elected, so nothing is deleted when its retention ends"
    if any(now_us - worker.started_us > ELECTED_WITHIN_US for worker in workers):
        advice = "Run a worker without --no-monitor, or `dueline monitor`."
        return Check("monitor", "warning", finding, advice)
    return Check("monitor", "good", finding)


def recurring(engine: Engine, workers: Sequence[Presence]) -> Iterator[Check]:
    """Find schedules whose jobs are not stored: no worker runs, or storing fails."""
    if overdue := list(_overdue(engine, OVERDUE_US, "warning")):
        yield from overdue
    elif not workers and (names := scheduler.unfinished(engine)):
        yield Check(
            "schedules",
            "warning",
            f"no live worker stores their jobs; schedules: {len(names)}, such as {names[0]}",
            _START_ANY,
        )


def _overdue(engine: Engine, by_us: int, verdict: Verdict) -> Iterator[Check]:
    if overdue := scheduler.overdue(engine, by_us):
        first = min(overdue, key=lambda schedule: schedule.due_us)
        yield Check(
            "schedules",
            verdict,
            f"no worker has stored the job of {first.name} that was due at "
            f"{instant_text(first.due_us)}; schedules that are overdue: {len(overdue)}",
            _START_ANY,
        )


_START_ANY = "Start a worker, of any queue: dueline worker MODULE:APP"


def _found_by_audits(engine: Engine) -> Iterator[Check]:
    repairs = findings(engine.store)
    if repairs:
        last = repairs[-1]
        yield Check(
            "audit",
            "warning",
            f"audits found jobs that no worker read, and listed them again: {len(repairs)} times, "
            f"the last at {instant_text(last.at_us)}, in the queue {last.queue}, job {last.job}",
            "Was that job's enqueue acknowledged? If so, report it.",
        )


def _stopped_functions(engine: Engine, verdict: Verdict, max_age_us: int = 0) -> Iterator[Check]:
    """Find durable functions that no worker has been able to continue for a duration."""
    since_us = engine.time.latest_us() - max_age_us
    stopped = [
        (stop, row)
        for queue in engine.catalog.names()
        for row, stop in stopped_in(engine, queue)
        if stop.since_us <= since_us
    ]
    if stopped:
        stop, row = min(stopped, key=lambda each: each[0].since_us)
        yield Check(
            "functions",
            verdict,
            f"durable functions that no worker can continue: {len(stopped)}, the first {row.task} "
            f"since {instant_text(stop.since_us)}: {stop.why}",
            "List them: dueline flows list --state stopped",
        )


def _failed_starts(engine: Engine, verdict: Verdict) -> Iterator[Check]:
    """Name applications that some machine cannot import."""
    now_us = engine.time.latest_us()
    for failed in failed_starts(engine.store):
        since = span_text(max(0, now_us - failed.since_us))
        yield Check(
            f"application {failed.place}",
            verdict,
            f"a worker on {failed.host} cannot start for {since}: {failed.error}",
            "Correct it there; `dueline worker` shows where it fails.",
        )


def _alerted(
    engine: Engine, verdict: Verdict, checked: Collection[str] = CHECKED
) -> Iterator[Check]:
    """Name the alerts that are raised, except those of what another check finds itself."""
    for alert in raised_alerts(engine):
        condition = alert.condition
        if condition.kind not in checked:
            finding = f"alert since {instant_text(alert.since_us)}: {condition.sentence}"
            advice = f"Run `{condition.command}`."
            yield Check(f"queue {condition.queue}", verdict, finding, advice)


def _undeclared(engine: Engine) -> Iterator[Check]:
    for name, capacity in semaphores(engine).items():
        if capacity is None:
            yield Check(
                f"limit {name}",
                "warning",
                "jobs name it and nothing declares it, so one runs at a time",
                "Is the name right? Declare it: app.semaphore or app.rate.",
            )


def _unknown(
    engine: Engine, queue: str, workers: Sequence[Presence], now_us: int, verdict: Verdict
) -> Iterator[Check]:
    """Find tasks of ready jobs that no live worker of a queue knows."""
    unknown = unknown_tasks(engine, queue, known_tasks(queue, workers), now_us)
    for since_us, text in map(unknown.__getitem__, sorted(unknown)):
        finding = f"{text}; a job waits for one for {span_text(now_us - since_us)}"
        is_needs = text.startswith("no live worker has")
        which = "that has what it needs" if is_needs else "of an application with the task"
        advice = f"Start a worker {which}, of the queue {queue}."
        yield Check(f"queue {queue}", verdict, finding, advice)


def _unserved(engine: Engine, workers: Sequence[Presence], most: int) -> Iterator[Check]:
    now_us = engine.time.latest_us()
    for name in engine.catalog.names():
        if engine.catalog.settings(name).is_paused:
            continue
        counts = count(engine, name, workers, most=most)
        if counts.ready and not counts.workers:
            least = "at least " if counts.is_capped else ""
            yield Check(
                f"queue {name}",
                "warning",
                f"no live worker serves it; jobs that are ready: {least}{counts.ready}",
                f"Start one: dueline worker MODULE:APP -q {name}",
            )
        elif counts.ready:
            yield from _unknown(engine, name, workers, now_us, "warning")
