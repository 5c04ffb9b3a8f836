"""`dueline pipeline what-if` and `plan`: simulate workers on the recorded jobs."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dueline.cli.errors import Exit, say_failure
from dueline.cli.option_groups import with_option_groups
from dueline.cli.options import option, read_counts
from dueline.cli.output import Entry, Instant, Part, note
from dueline.cli.pipeline_options import LocalTableOptions, open_pipeline, output_of, progress
from dueline.core.durations import parse_span
from dueline.core.errors import BadInput
from dueline.foresight.planner import Asked, Plan, Point, hour_text
from dueline.foresight.planner import plan as make_plan
from dueline.foresight.scenario import Changes
from dueline.foresight.summary import MINUTE_US, Latencies, Outcome, errors_of
from dueline.foresight.target import Target, target_of
from dueline.limits.rate import Rate, check_rate

if TYPE_CHECKING:
    from dueline.spark.pipeline.what_if import Replayed

COLUMNS = ("setting", "queue", "tenant", "starts", "p50_ms", "p95_ms", "p99_ms", "late")
TENANTS_MAX = 20

_NUMBER = re.compile(r"([^=]+)=(-?\d+)")
_LIMIT = re.compile(r"([^=]+)=(\d+)(?:/(.+))?")


@dataclass(frozen=True, slots=True)
class SettingOptions:
    """What a simulation changes."""

    workers: Annotated[
        str | None, option("N[,N...]", "Number of workers; several are compared.")
    ] = None
    slots: Annotated[int | None, option("N", "Slots of each worker.", min=1)] = None
    priority: Annotated[list[str] | None, option("TASK=N", "Priority of a task; repeatable.")] = (
        None
    )
    limit: Annotated[
        list[str] | None, option("NAME=N[/PERIOD]", "Capacity, or rate; repeatable.")
    ] = None
    weights: Annotated[str | None, option("TENANT=N,...", "Weights of tenants.")] = None
    shards: Annotated[int | None, option("N", "Number of shards.", min=1, max=1024)] = None

    def read(self) -> list[Changes]:
        """Return the settings: one, or one for each number of workers; none without a change.

        Raises: BadInput: an option has another form.
        """
        priorities = dict(_numbers(self.priority or (), "--priority shop.mail=3"))
        capacities, rates = _limits(self.limit or ())
        pairs = self.weights.split(",") if self.weights else ()
        weights = read_counts(pairs, what="weight", hint="Use --weights a=2,b=1.")
        changes = Changes("", None, self.slots, priorities, capacities, rates, weights, self.shards)
        words = [
            *([f"{self.slots} slots"] if self.slots else ()),
            *(f"{change}" for change in (*(self.priority or ()), *(self.limit or ()), *pairs)),
            *([f"{self.shards} shards"] if self.shards else ()),
        ]
        if self.workers is None:
            return [replace(changes, name=", ".join(words))] if words else []
        return [
            replace(changes, name=", ".join([f"{count} workers", *words]), workers=count)
            for count in _counts(self.workers)
        ]


def _counts(text: str) -> list[int]:
    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) for word in words):
        raise BadInput(f"{text!r:.80} is not a number of workers.", hint="Use --workers 8,16.")
    return [int(word) for word in words]


def _numbers(words: Sequence[str], hint: str) -> list[tuple[str, int]]:
    matches = [_NUMBER.fullmatch(word) for word in words]
    for word, match in zip(words, matches, strict=True):
        if match is None:
            raise BadInput(f"{word!r:.80} is not a name and a number.", hint=f"Use {hint}.")
    return [(match[1], int(match[2])) for match in matches if match is not None]


def _limits(words: Sequence[str]) -> tuple[dict[str, int], dict[str, Rate]]:
    capacities: dict[str, int] = {}
    rates: dict[str, Rate] = {}
    for word in words:
        match = _LIMIT.fullmatch(word)
        if match is None:
            raise BadInput(
                f"{word!r:.80} is not a limit.", hint="Use --limit api=20, or --limit api=20/1s."
            )
        name, count, per = match.groups()
        if per is None:
            capacities[name] = int(count)
        else:
            rates[name] = check_rate(name, int(count), parse_span(per))
    return capacities, rates


@with_option_groups
def what_if(
    context: typer.Context,
    *,
    tables: LocalTableOptions,
    setting: SettingOptions,
    target: Annotated[str, option("TARGET", 'What starts should keep: "p99<2s".')] = "p99<1s",
    file: Annotated[Path | None, option("FILE", "Write a page with pictures.", "--file")] = None,
) -> None:
    """Simulate the jobs of a period with other settings.

    Copies new history first. Each job arrives when it really did, and runs and fails as it really
    did; when it starts is simulated. The first lines compare a replay with the settings in force
    with what really happened: that is the error of the simulation.

    Example: dueline pipeline what-if --since 2026-11-20T00:00:00Z --workers 4,8
    """
    aim = target_of(target)
    settings = setting.read()
    made = open_pipeline(context, tables)
    from dueline.spark.pipeline.what_if import (  # noqa: PLC0415  (may be missing)
        Period,
        not_known_of,
        replayed,
    )

    since_us, until_us = tables.read()
    period = Period(since_us or 0, until_us or 1 << 62)
    say = progress(time.monotonic())
    prepared = made.simulator(period, settings, say)
    replays = replayed(prepared.simulator, settings)
    runs = [("really", replays.real), ("in force", replays.in_force)]
    runs += [(changes.name, outcome) for changes, outcome in replays.changed]
    chosen = [(name, run.of_queues(tables.queue or ())) for name, run in runs]
    lines = [line for name, run in chosen for line in _lines(name, run, aim)]
    output = output_of(context)
    output.tables([Part("settings", lines, COLUMNS), Part("use", _use(runs), _USE)])
    output.data(
        {
            "target": str(aim),
            "settings": lines,
            "use": _use(runs),
            "error": errors_of(*(run.latencies(aim) for _, run in chosen[:2])),
            "minutes": [line for name, run in chosen for line in _minutes(name, run, aim)],
            "not_known": not_known_of(prepared.functions),
        }
    )
    note(_error(replays, tables.queue or (), aim))
    if unknown := not_known_of(prepared.functions):
        note(unknown)
    if file is not None:
        from dueline.spark.pipeline.what_if_page import page  # noqa: PLC0415  (a browser's engine)

        file.write_text(page(chosen, aim), encoding="utf-8")
        note(f"Wrote {file}.")


@with_option_groups
def plan(
    context: typer.Context,
    *,
    tables: LocalTableOptions,
    target: Annotated[str, option("TARGET", 'What starts should keep: "p99<2s".')],
    slots: Annotated[int | None, option("N", "Slots of each worker.", min=1)] = None,
) -> int:
    """Recommend workers and limits for a target.

    Simulates numbers of workers on the recorded jobs, and checks the least that keeps the target on
    the last week of the history, or on its last third. Exits 6 if none keeps it.

    Example: dueline pipeline plan --target "p99<2s" --queue mail
    """
    aim = target_of(target)
    made = open_pipeline(context, tables)
    from dueline.spark.pipeline.what_if import Period, not_known_of  # noqa: PLC0415  (see above)

    since_us, until_us = tables.read()
    period = Period(since_us or 0, until_us or 1 << 62)
    prepared = made.simulator(period, (), progress(time.monotonic()))
    asked = Asked(aim, tables.queue or (), slots, prepared.capacities)
    plan = make_plan(prepared.simulator, asked)
    shards = prepared.shards_for(plan.workers or 1)
    _show_plan(context, plan, aim, shards)
    if unknown := not_known_of(prepared.functions):
        note(unknown)
    if plan.held_out is not None and plan.held_out.meets:
        return Exit.DONE
    return say_failure(
        "no plan keeps the target",
        why=f"No number of workers keeps {aim} in both parts of the history.",
        attempt="Look at limits, pauses and run times; or choose another target.",
        code=Exit.CHECK,
    )


def _show_plan(context: typer.Context, plan: Plan, aim: Target, shards: int) -> None:
    answer: Entry = {
        "target": str(aim), "workers": plan.workers, "slots": plan.slots, "shards": shards,
        "limits": dict(plan.capacities),
    }  # fmt: skip
    errors = {name: round(error, 4) for name, error in errors_of(plan.real, plan.replay).items()}
    evidence = [_point("before", point) for point in plan.curve]
    evidence += [] if plan.held_out is None else [_point("held out", plan.held_out)]
    hours: list[Entry] = [
        {
            "hour": hour_text(hour.hour),
            "starts_per_hour": round(hour.starts, 1),
            **{name: value for name, value in _percentiles(hour.found).items() if name != "starts"},
        }
        for hour in plan.hours
    ]
    busiest = sorted(hours, key=lambda hour: -float(str(hour["starts_per_hour"])))[:BUSIEST]
    output = output_of(context)
    output.tables(
        [
            Part("plan", [answer], ("target", "workers", "slots", "shards", "limits")),
            Part("evidence", evidence, _EVIDENCE),
            Part("busiest hours", busiest, _HOURS),
        ]
    )
    split = Instant(plan.split_us)
    output.data({**answer, "split": split, "evidence": evidence, "hours": hours, "error": errors})
    words = ", ".join(f"{name} {error:+.1%}" for name, error in errors.items())
    note(f"Error of the replay with the settings in force: {words}.")


def _point(part: str, point: Point) -> Entry:
    return {
        "part": part, "workers": point.workers, **_percentiles(point.found),
        "utilisation": round(point.utilisation, 4), "meets": point.meets,
    }  # fmt: skip


_EVIDENCE = ("part", "workers", "starts", "p50_ms", "p95_ms", "p99_ms", "late", "utilisation",
             "meets")  # fmt: skip
_HOURS = ("hour", "starts_per_hour", "p50_ms", "p95_ms", "p99_ms", "late")
_USE = ("setting", "utilisation", "unstarted")
BUSIEST = 5


def _use(runs: Sequence[tuple[str, Outcome]]) -> list[Entry]:
    return [
        {"setting": name, "utilisation": round(run.utilisation, 4), "unstarted": run.unstarted}
        for name, run in runs
    ]


def _error(replays: "Replayed", queues: Sequence[str], aim: Target) -> str:
    """Return the error of the simulation in words."""
    real, simulated = (
        outcome.of_queues(queues).latencies(aim) for outcome in (replays.real, replays.in_force)
    )
    parts = [f"{name} {error:+.1%}" for name, error in errors_of(real, simulated).items()]
    return f"Error of the replay with the settings in force: {', '.join(parts)}."


def _lines(name: str, outcome: Outcome, aim: Target) -> list[Entry]:
    """Return a line for each queue, and for each tenant of a queue with several."""
    lines = []
    tenants = outcome.by(lambda cell: cell[:2], aim)
    for (queue,), latencies in outcome.by(lambda cell: cell[:1], aim).items():
        lines.append(_line(name, str(queue), "", latencies))
        mine = [(str(tenant), each) for (of, tenant), each in tenants.items() if of == queue]
        if len(mine) > 1:
            lines += [_line(name, str(queue), tenant, each) for tenant, each in mine[:TENANTS_MAX]]
    return lines


def _line(name: str, queue: str, tenant: str, latencies: Latencies) -> Entry:
    return {"setting": name, "queue": queue, "tenant": tenant, **_percentiles(latencies)}


def _percentiles(latencies: Latencies) -> Entry:
    return {
        "starts": latencies.starts,
        **{f"{name}_ms": round(us / 1000, 1)
           for name, us in zip(("p50", "p95", "p99"), latencies[1:4], strict=True)},
        "late": round(latencies.late, 5),
    }  # fmt: skip


def _minutes(name: str, outcome: Outcome, aim: Target) -> list[Entry]:
    by_minute = outcome.by(lambda cell: (cell[2], cell[0], cell[1]), aim)
    return [
        {
            "setting": name, "minute": Instant(minute * MINUTE_US), "queue": queue,
            "tenant": tenant, **_percentiles(latencies),
        }
        for (minute, queue, tenant), latencies in by_minute.items()
        if isinstance(minute, int) and isinstance(queue, str) and isinstance(tenant, str)
    ]  # fmt: skip
