"""Alerts of the maintenance leader: the rules, applied to the store's own counters."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from dueline.coordination import notes
from dueline.core.clock import DAY_US, SECOND_US, to_datetime
from dueline.core.codec import JSON, encode
from dueline.core.engine import Engine
from dueline.core.errors import StoreCorrupt
from dueline.core.logging import log
from dueline.core.maintenance import MaintenanceTask, StepResult
from dueline.foresight.alert_settings import WEBHOOK_TASK, read_settings
from dueline.foresight.alert_signals import Seen, look, view_of
from dueline.foresight.alerts import Alert, after, conditions
from dueline.foresight.rates import rates_of
from dueline.jobs.queue import EnqueueRequest, Queues

EVERY_US: Final = 15 * SECOND_US
QUEUES_A_STEP: Final = 20
KIND: Final = "alerts"


@dataclass(frozen=True, slots=True)
class Note:
    """The alerts of a queue, and what was seen of it."""

    alerts: Sequence[Alert] = ()
    seen: Seen = field(default_factory=Seen)


def alerts_of(engine: Engine, queue: str) -> Sequence[Alert]:
    """Return the alerts of a queue that are raised."""
    return _note(engine, queue).alerts


def watch_queues(queues: Queues, after_name: str | None) -> StepResult:
    """Judge some queues; report alerts that are raised or ended to the log and the webhook."""
    engine = queues.engine
    settings = read_settings(engine.store)
    if not settings.is_on:
        return StepResult()
    names = engine.catalog.names_after(after_name, QUEUES_A_STEP)
    view = view_of(engine)
    puts, changed = [], []
    for name in names:
        with suppress(StoreCorrupt):  # `dueline doctor` names it
            before = _note(engine, name)
            found, seen = look(
                view, name, settings.target(name), before.seen, rates_of(engine, name)
            )
            raised = frozenset(alert.condition.key for alert in before.alerts)
            alerts, news = after(before.alerts, conditions(found, raised=raised), view.now_us)
            changed += news
            made = Note(alerts, seen)
            if made.alerts or made.seen.shards or before.alerts or before.seen.shards:
                expires_us = view.now_us + DAY_US
                version = engine.ids.token()
                puts.append(notes.put(KIND, name, encode(made), version, expires_us=expires_us))
    if changed and settings.webhook_queue:
        enqueue_webhook(queues, settings.webhook_queue, changed)
    for one in changed:
        if one.ended_us:
            log.info("%s", one.text())
    warnings = [one.text() for one in changed if not one.ended_us]
    is_last = len(names) < QUEUES_A_STEP
    return StepResult(len(changed), None if is_last else names[-1], puts, warnings=warnings)


def task_of(queues: Queues) -> MaintenanceTask:
    """Return the maintenance task that raises alerts."""
    return MaintenanceTask("alerts", EVERY_US, lambda _, after: watch_queues(queues, after))


def _note(engine: Engine, queue: str) -> Note:
    return notes.value(engine.store, KIND, queue, Note) or Note()


def enqueue_webhook(queues: Queues, queue: str, changed: Sequence[Alert]) -> None:
    """Enqueue a call of the webhook for each alert that was raised or ended."""
    bodies = [encode([encode(report_of(alert)).decode()]) for alert in changed]
    queues.enqueue(EnqueueRequest(queue, WEBHOOK_TASK, JSON, bodies))


def report_of(alert: Alert) -> Mapping[str, object]:
    """Return an alert as the webhook sends it."""
    one = alert.condition
    return {
        "id": alert.id,
        "status": "ended" if alert.ended_us else "raised",
        "kind": one.kind,
        "queue": one.queue,
        "subject": one.subject,
        "since": to_datetime(alert.since_us).isoformat(),
        "ended": to_datetime(alert.ended_us).isoformat() if alert.ended_us else None,
        "evidence": one.sentence,
        "command": one.command,
        "facts": dict(one.facts),
    }
