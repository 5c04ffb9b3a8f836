"""The rules of alerts: what is wrong with a queue, from what is known of it at one time.

Pure functions, which `alert_engine` applies.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Final, Literal, NamedTuple

from dueline.coordination.failed_starts import FailedStart
from dueline.core.clock import SECOND_US
from dueline.core.durations import instant_text, span_text
from dueline.foresight.rates import QueueRates
from dueline.foresight.target import Target
from dueline.jobs.circuit_records import Circuit

Kind = Literal[
    "shard",
    "budget",
    "tenant",
    "failures",
    "forecast",
    "stopped",
    "dead",
    "paused",
    "import",
    "uncertain",
    "schedule",
    "circuit",
]
Facts = Mapping[str, int | float | str]

STILL_US: Final = 25 * SECOND_US
"""A shard or tenant stands still if none of its ready jobs was claimed for this time."""

BURN_MIN: Final = 10.0
"""Error-budget burn rate of the last minute that raises an alert; half of it keeps it raised."""

LATE_SHARE_MAX: Final = 0.5
"""Share of starts that raises an alert if they are late, for targets such as p80<1m."""

LATE_MIN: Final = 5
"""Minimum number of starts that were late in the last minute."""

CALM_US: Final = 60 * SECOND_US
"""An alert ends after its condition has not held for this time."""

_LIST: Final = "dueline jobs list --queue"


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that is wrong.

    Attributes:
      subject: The shard, tenant or task; empty for the whole queue.
      sentence: The evidence, in words.
      command: What to run to see more or to help.
      facts: The numbers behind it.
    """

    kind: Kind
    queue: str
    subject: str
    sentence: str
    command: str
    facts: Facts = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Return what tells alerts apart."""
        return f"{self.kind} {self.queue} {self.subject}"


@dataclass(frozen=True, slots=True)
class Alert:
    """A condition that holds, or has held until just now.

    Attributes:
      since_us, held_us: When it held first and last.
      ended_us: When the alert ended; 0 before.
    """

    condition: Condition
    since_us: int
    held_us: int
    ended_us: int = 0

    @property
    def id(self) -> str:
        """Return an id, the same in all reports of this alert."""
        return f"{self.condition.key} {self.since_us}"

    def text(self) -> str:
        """Return the alert as a line for a log."""
        kind, queue, subject = self.condition.kind, self.condition.queue, self.condition.subject
        where = f"queue {queue}{f', {kind} {subject}' if subject else ''}"
        if self.ended_us:
            return f"alert ended after {span_text(self.ended_us - self.since_us)}: {where}"
        return f"alert: {where}: {self.condition.sentence} Run: {self.condition.command}"


class Wait(NamedTuple):
    """Ready jobs of a shard or tenant.

    Attributes:
      oldest_us: Since when the oldest waits.
      still_us: Since when none of them was claimed.
    """

    oldest_us: int
    still_us: int


class Miss(NamedTuple):
    """When a queue will miss its target. late: share of starts of the next hour that are late."""

    at_us: int
    late: float
    cause: str


class Stopped(NamedTuple):
    """Durable functions of a task that no worker can continue. why: of the first of them."""

    number: int
    since_us: int
    why: str


@dataclass(frozen=True, slots=True)
class Signals:
    """What is known of a queue at one time.

    Attributes:
      rates: What it did, up to now.
      shards, tenants: Those with ready jobs that no pause and no limit holds.
      overdue: Waiting jobs that are later than the target allows, as far as they are known.
      workers: Live workers that serve it; `has_room`: whether one has a free slot.
      moved_us: When a job was claimed last, as far as it is known.
      stopped: Durable functions that no worker can continue, by task.
      paused_us: Since when the oldest ready job of a paused queue waits; 0 for none.
      failed: Applications with workers of the queue that cannot be imported.
      circuits: Tasks that are paused by themselves since they failed.
    """

    queue: str
    now_us: int
    rates: QueueRates | None = None
    target: Target | None = None
    shards: Mapping[str, Wait] = field(default_factory=dict)
    tenants: Mapping[str, Wait] = field(default_factory=dict)
    overdue: int = 0
    workers: int = 1
    has_room: bool = True
    moved_us: int = 0
    miss: Miss | None = None
    stopped: Mapping[str, Stopped] = field(default_factory=dict)
    paused_us: int = 0
    failed: Sequence[FailedStart] = ()
    circuits: Mapping[str, Circuit] = field(default_factory=dict)


def conditions(signals: Signals, *, raised: frozenset[str] = frozenset()) -> list[Condition]:
    """Return what is wrong with a queue. raised: keys of alerts that are raised already."""
    return [
        *_still_shards(signals),
        *_budget(signals, raised),
        *_starving(signals),
        *_miss(signals),
        *_stopped(signals),
        *_paused(signals),
        *_open_circuits(signals),
        *_imports(signals),
    ]


def _still_shards(signals: Signals) -> Iterator[Condition]:
    for shard, wait in signals.shards.items():
        still_us = signals.now_us - wait.still_us
        others_move = signals.moved_us > wait.still_us
        if still_us < STILL_US or not (others_move or signals.has_room or not signals.workers):
            continue
        why = (
            "no live worker claims from the queue"
            if not signals.workers
            else ("other shards go on" if others_move else "workers have free slots")
        )
        yield Condition(
            "shard",
            signals.queue,
            shard,
            f"No ready job of the shard was claimed for {span_text(still_us)}, and {why}; the "
            f"oldest waits for {span_text(signals.now_us - wait.oldest_us)}.",
            f"dueline shards lag --queue {quote(signals.queue)}",
            {
                "still_us": still_us,
                "oldest_us": signals.now_us - wait.oldest_us,
                "workers": signals.workers,
            },
        )


def _budget(signals: Signals, raised: frozenset[str]) -> Iterator[Condition]:
    target = signals.target
    if target is None:
        return
    starts = late = float(signals.overdue)
    hour = hour_late = 0.0
    if signals.rates is not None:
        all_, slow = signals.rates.starts(), signals.rates.late(target.most_us)
        starts, late = starts + all_.minute, late + slow.minute
        hour, hour_late = all_.hour, slow.hour
    budget = 1 - target.share
    burn = late / starts / budget if starts else 0.0
    burn_hour = (hour_late + signals.overdue) / (hour + signals.overdue) / budget if hour else burn
    key = Condition("budget", signals.queue, "", "", "").key
    least = min(BURN_MIN, LATE_SHARE_MAX / budget) / (2 if key in raised else 1)
    if late >= LATE_MIN and burn >= least and burn_hour >= 1:
        yield Condition(
            "budget",
            signals.queue,
            "",
            f"{late / starts:.0%} of the starts of the last minute were later than "
            f"{span_text(target.most_us)}: the error budget of {target} burns {burn:.0f} "
            "times too fast.",
            f"dueline queues show {quote(signals.queue)}",
            {"burn": round(burn, 1), "burn_hour": round(burn_hour, 1), "late": round(late, 1)},
        )


def _starving(signals: Signals) -> Iterator[Condition]:
    for tenant, wait in signals.tenants.items():
        still_us = signals.now_us - wait.still_us
        if still_us >= STILL_US and signals.moved_us > wait.still_us + STILL_US // 2:
            who = f"the tenant {tenant}" if tenant else "jobs without a tenant"
            yield Condition(
                "tenant",
                signals.queue,
                tenant,
                f"No job of {who} was claimed for {span_text(still_us)} while others were; the "
                f"oldest waits for {span_text(signals.now_us - wait.oldest_us)}.",
                f"{_LIST} {quote(signals.queue)} --state ready --tenant {quote(tenant)}",
                {"still_us": still_us, "oldest_us": signals.now_us - wait.oldest_us},
            )


def _miss(signals: Signals) -> Iterator[Condition]:
    miss, target = signals.miss, signals.target
    if miss is None or target is None:
        return
    yield Condition(
        "forecast",
        signals.queue,
        "",
        f"It will miss {target} from {instant_text(miss.at_us)} on: {miss.cause}",
        f'dueline workers wanted --queue {quote(signals.queue)} --target "{target}"',
        {"at_us": miss.at_us, "late": round(miss.late, 3)},
    )


def _stopped(signals: Signals) -> Iterator[Condition]:
    for task, (number, since_us, why) in signals.stopped.items():
        functions = "1 durable function" if number == 1 else f"{number} durable functions"
        first = "" if number == 1 else ", the first"
        yield Condition(
            "stopped",
            signals.queue,
            task,
            f"No worker can continue {functions} of {task}{first} for "
            f"{span_text(signals.now_us - since_us)}: {why}.",
            f"dueline flows list --state stopped --name {quote(task)}",
            {"stopped": number, "since_us": signals.now_us - since_us, "why": why},
        )


def _paused(signals: Signals) -> Iterator[Condition]:
    waits_us = signals.now_us - signals.paused_us
    if signals.paused_us and waits_us >= STILL_US:
        yield Condition(
            "paused",
            signals.queue,
            "",
            f"It is paused, and its oldest ready job waits for {span_text(waits_us)}.",
            f"dueline queues resume {quote(signals.queue)}",
            {"oldest_us": waits_us},
        )


def _open_circuits(signals: Signals) -> Iterator[Condition]:
    for task, circuit in signals.circuits.items():
        open_us = signals.now_us - circuit.opened_us
        yield Condition(
            "circuit",
            signals.queue,
            task,
            f"{task} has been paused by itself for {span_text(open_us)}, since "
            f"{circuit.why}; one job probes it every {span_text(circuit.every_us)}.",
            f"dueline queues resume {quote(signals.queue)} --task {quote(task)}",
            {"failed": circuit.failed, "of": circuit.of, "open_us": open_us},
        )


def _imports(signals: Signals) -> Iterator[Condition]:
    for failed in signals.failed:
        yield cannot_start(failed, signals.queue, signals.now_us)


def cannot_start(failed: FailedStart, queue: str, now_us: int) -> Condition:
    """Return that an application cannot be imported."""
    times = f", {failed.times} times" if failed.times > 1 else ""
    return Condition(
        "import",
        queue,
        failed.key,
        f"A worker of {failed.place} on {failed.host} cannot start for "
        f"{span_text(max(0, now_us - failed.since_us))}{times}: {failed.error}",
        f"dueline worker {quote(failed.place)}",
        {"times": failed.times, "host": failed.host},
    )


def after(
    alerts: Sequence[Alert], current: Sequence[Condition], now_us: int
) -> tuple[list[Alert], list[Alert]]:
    """Return the alerts of a queue that are raised now, and those that were raised or ended.

    Args:
      alerts: Those that were raised before.
      current: What is wrong now.
      now_us: The time.
    """
    holding = {condition.key: condition for condition in current}
    kept: list[Alert] = []
    changed: list[Alert] = []
    for alert in alerts:
        condition = holding.pop(alert.condition.key, None)
        if condition is not None:
            kept.append(replace(alert, condition=condition, held_us=now_us))
        elif now_us - alert.held_us < CALM_US:
            kept.append(alert)
        else:
            changed.append(replace(alert, ended_us=now_us))
    new = [Alert(condition, now_us, now_us) for condition in holding.values()]
    return [*kept, *new], [*new, *changed]
