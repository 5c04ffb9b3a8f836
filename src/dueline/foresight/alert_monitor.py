"""Alerts of the maintenance leader, by the counters of workers; its notes keep what is raised."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from dueline.coordination import notes
from dueline.core.clock import DAY_US, SECOND_US, to_datetime
from dueline.core.codec import JSON, encode
from dueline.core.engine import Engine
from dueline.core.errors import StoreCorrupt
from dueline.core.logging import log
from dueline.core.maintenance import MaintenanceTask, StepResult
from dueline.core.store import Put
from dueline.durable.stopped import forget_resumed
from dueline.foresight.alert_engine import Note, failed_by_queue, judge, view_of
from dueline.foresight.alert_settings import WEBHOOK_TASK, read_settings
from dueline.foresight.alerts import Alert, cannot_start
from dueline.foresight.missed_occurrences import Occurrences
from dueline.foresight.rates import rates_of
from dueline.jobs.queue import EnqueueRequest, Queues

EVERY_US: Final = 15 * SECOND_US
QUEUES_A_STEP: Final = 20
KIND: Final = "alerts"

OccurrencesOf = Callable[[Engine], Mapping[str, Sequence[Occurrences]]]


def raised_alerts(engine: Engine) -> list[Alert]:
    """Return the alerts that are raised, by queue.

    Applications that cannot be imported are among them at once: there may be no leader.
    """
    names = set(engine.catalog.names())
    noted = notes.values(engine.store, KIND, Note)
    alerts = [alert for name, note in noted if name in names for alert in note.alerts]
    known = {alert.condition.subject for alert in alerts if alert.condition.kind == "import"}
    now_us = engine.time.latest_us()
    alerts += [
        Alert(cannot_start(failed, queue, now_us), failed.since_us, failed.at_us)
        for queue, failures in failed_by_queue(engine).items()
        for failed in failures
        if failed.key not in known
    ]
    return alerts


def watch_queues(
    queues: Queues, after_name: str | None, occurrences: OccurrencesOf = lambda _: {}
) -> StepResult:
    """Judge some queues; report alerts that are raised or ended to the log and the webhook.

    Args:
      queues: The queues.
      after_name: The name after which the queues begin.
      occurrences: Returns what became of the occurrences of schedules, by queue.
    """
    engine = queues.engine
    settings = read_settings(engine.store)
    if not settings.is_on:
        return StepResult()
    names = engine.catalog.names_after(after_name, QUEUES_A_STEP)
    view = view_of(engine, occurrences(engine))
    puts: list[Put] = []
    changed: list[Alert] = []
    for name in names:
        with suppress(StoreCorrupt):  # `dueline doctor` names it
            forget_resumed(engine, name)
            before = _note(engine, name)
            note, news = judge(view, name, settings.target(name), before, rates_of(engine, name))
            changed += news
            is_kept = note.alerts or note.seen.shards or before.alerts or before.seen.shards
            has_dead = note.dead is not None and (before.dead is None or any(note.dead.sums))
            has_more = (note.tasks, note.schedules) != (before.tasks, before.schedules or {})
            if is_kept or has_dead or has_more:
                expires_us = view.now_us + DAY_US
                version = engine.ids.token()
                puts.append(notes.put(KIND, name, encode(note), version, expires_us=expires_us))
    if changed and settings.webhook_queue:
        enqueue_webhook(queues, settings.webhook_queue, changed)
    for alert in changed:
        if alert.ended_us:
            log.info("%s", alert.text())
    warnings = [alert.text() for alert in changed if not alert.ended_us]
    is_last = len(names) < QUEUES_A_STEP
    return StepResult(len(changed), None if is_last else names[-1], puts, warnings=warnings)


def task_of(queues: Queues, occurrences: OccurrencesOf = lambda _: {}) -> MaintenanceTask:
    """Return the maintenance task that raises alerts; occurrences: as of `watch_queues`."""
    return MaintenanceTask(
        "alerts", EVERY_US, lambda _, after: watch_queues(queues, after, occurrences)
    )


def _note(engine: Engine, queue: str) -> Note:
    try:
        return notes.value(engine.store, KIND, queue, Note) or Note()
    except StoreCorrupt as error:  # it is written anew
        log.warning("the note on the alerts of the queue %s is damaged: %s", queue, error)
        return Note()


def enqueue_webhook(queues: Queues, queue: str, changed: Sequence[Alert]) -> None:
    """Enqueue a call of the webhook for each alert that was raised or ended."""
    bodies = [encode([encode(report_of(alert)).decode()]) for alert in changed]
    queues.enqueue(EnqueueRequest(queue, WEBHOOK_TASK, JSON, bodies))


def report_of(alert: Alert) -> Mapping[str, object]:
    """Return an alert as the webhook sends it."""
    condition = alert.condition
    return {
        "id": alert.id,
        "status": "ended" if alert.ended_us else "raised",
        "kind": condition.kind,
        "queue": condition.queue,
        "subject": condition.subject,
        "since": to_datetime(alert.since_us).isoformat(),
        "ended": to_datetime(alert.ended_us).isoformat() if alert.ended_us else None,
        "evidence": condition.sentence,
        "command": condition.command,
        "facts": dict(condition.facts),
    }
