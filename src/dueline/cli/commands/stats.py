"""`dueline stats`: job counts, throughput and start latency."""

import sys
from typing import Annotated

import typer

from dueline.admin.throughput import Throughput, recent
from dueline.cli.commands.queues import COLUMNS, numbers_of
from dueline.cli.errors import Exit
from dueline.cli.options import option
from dueline.cli.output import Entry, Output, Part, Span, note
from dueline.cli.session import session_of
from dueline.coordination.worker_registry import present
from dueline.core.clock import SystemClock
from dueline.core.durations import parse_span
from dueline.core.engine import Engine
from dueline.jobs.counts import count

OTHER_ENDS = ("snoozed", "given_back", "cancelled", "expired", "lost")
"""Outcomes that are neither done nor failed: all together are what ended."""

_CLEAR = "\x1b[H\x1b[2J"


def stats(
    context: typer.Context,
    *,
    watch: Annotated[str | None, option("DURATION", "Repeat at this interval: 2, 10s.")] = None,
) -> int:
    """Show job counts, throughput and start latency.

    `ended` is the sum of the outcomes below it; `failed` counts attempts that were retried, dead
    or crashed. Throughput and start latency come from the history of the last 10 seconds, or of
    the last one or five minutes if few jobs have ended.

    Example: dueline stats --watch 2
    """
    every_s = None if watch is None else max(0.1, parse_span(watch) / 1e6)
    clock = SystemClock()
    with session_of(context).engine() as engine:
        try:
            while True:
                if every_s is not None and sys.stdout.isatty():
                    print(_CLEAR, end="")  # noqa: T201
                _show(context, engine)
                sys.stdout.flush()
                if every_s is None:
                    return Exit.DONE
                clock.sleep(every_s)
        except KeyboardInterrupt:
            return Exit.INTERRUPTED


def _show(context: typer.Context, engine: Engine) -> None:
    workers = present(engine.store)
    names = engine.catalog.names()
    shown = [numbers_of(count(engine, name, workers, whole=True)) for name in names]
    throughput = recent(engine, names)
    Output.of(context, engine).entry(
        throughput_entry(throughput), parts=[Part("queues", shown, COLUMNS)]
    )
    if throughput.is_capped:
        note(
            f"More attempts ended than the {throughput.ended} that were read:"
            " the rate is at least this."
        )


def throughput_entry(throughput: Throughput) -> Entry:
    """Return the output of throughput and start latency."""
    return {
        "span": Span(throughput.span_us),
        "done_per_second": round(throughput.per_s(), 2),
        "ended": throughput.ended,
        "done": throughput.done,
        "failed": throughput.failed,
        **{name: throughput.others.get(name, 0) for name in OTHER_ENDS},
        "late_p50": None if throughput.late_p50_us is None else Span(throughput.late_p50_us),
        "late_p99": None if throughput.late_p99_us is None else Span(throughput.late_p99_us),
        "capped": throughput.is_capped,
    }
