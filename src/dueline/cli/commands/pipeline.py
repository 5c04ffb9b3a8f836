"""`dueline pipeline`: a history in tables, judged."""

import json
import shlex
import time
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dueline.api.connect import mask
from dueline.cli.errors import Exit, say_failure, show_error
from dueline.cli.option_groups import with_option_groups
from dueline.cli.options import read_counts, read_instant
from dueline.cli.output import Entry, Instant, Part, note
from dueline.cli.pipeline_options import (
    OUT,
    ClusterOptions,
    Engine,
    EngineOption,
    OutOption,
    PeriodOptions,
    QueuesOption,
    need,
    open_pipeline,
    output_of,
    progress,
)
from dueline.cli.session import session_of
from dueline.core.clock import SystemClock, asked_instant_us
from dueline.core.durations import parse_span
from dueline.core.errors import BadInput, ConfigError, NotFound, StoreCorrupt

if TYPE_CHECKING:
    from dueline.spark.pipeline.audit import Judged

SHOWN = 20

pipeline = typer.Typer(help="Make tables of what queues did, on Spark or without, and judge it.")


@pipeline.command("run")
@with_option_groups
def run(
    context: typer.Context,
    steps: Annotated[
        list[str] | None, typer.Argument(metavar="STEP", help="bronze, silver, gold; or all.")
    ] = None,
    *,
    out: OutOption = OUT,
    queue: QueuesOption = None,
    engine: EngineOption = Engine.SPARK,
    once: Annotated[bool, typer.Option("--once", help="Once, up to now: the default.")] = False,
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="Again and again, so long after the last.")
    ] = None,
    target: Annotated[
        str, typer.Option(metavar="TIME", help="A start that is no later than this is in time.")
    ] = "1s",
    period: PeriodOptions,
    objective: Annotated[
        float, typer.Option(metavar="SHARE", help="The share of starts that should be in time.")
    ] = 0.99,
    cluster: ClusterOptions,
    print_submit: Annotated[
        bool, typer.Option("--print-submit", help="Print how a cluster runs this; run nothing.")
    ] = False,
) -> int:
    """Copy what is new in the history, and bring the tables up to date.

    Bronze is the history as it is, silver a row an attempt, gold counts and histograms by minute,
    and tables for operators: slo, fairness, suspicious, poison, flow. Each run does what is new.
    Tables that are begun with --since or --until hold that period ever after.

    Example: dueline pipeline run --out lake --engine arrow
    """
    if once and every is not None:
        raise BadInput("--once and --every exclude each other.", hint="Give one of them.")
    if not 0 < objective < 1:
        raise BadInput(f"--objective {objective} is no share below 1.", hint="Write 0.99.")
    if print_submit:
        names = [word for one in queue or () for word in ("--queue", one)]
        names += [] if period.since is None else ["--since", period.since]
        names += [] if period.until is None else ["--until", period.until]
        print(_submit(context, [*(steps or ()), *names], out, cluster))  # noqa: T201
        return Exit.DONE
    since_us, until_us = period.read()
    made = open_pipeline(
        context, out, queue, engine, cluster,
        target_us=parse_span(target), objective=objective,
    )  # fmt: skip
    every_s = None if every is None else parse_span(every) / 1e6
    while True:
        begun = time.monotonic()
        try:
            done = made.run(steps or (), progress(begun), since_us=since_us, until_us=until_us)
        except StoreCorrupt as error:  # the history has lost rows that were not copied
            show_error(error)
            return Exit.CHECK
        except KeyboardInterrupt:
            return Exit.INTERRUPTED
        entries: list[Entry] = [one._asdict() for one in done]
        output_of(context).entries(entries, ("name", "rows", "parts"), out=str(out))
        if every_s is None:
            return Exit.DONE
        try:
            SystemClock().sleep(every_s)
        except KeyboardInterrupt:
            return Exit.INTERRUPTED


@pipeline.command("status")
def status(context: typer.Context, *, out: OutOption = OUT, queue: QueuesOption = None) -> None:
    """Tell what the tables hold, and how far behind the store they are.

    Example: dueline pipeline status --out lake
    """
    tables, shards = open_pipeline(context, out, queue, Engine.ARROW).status()
    shown: list[Entry] = [_instants(one) for one in tables]
    lags: list[Entry] = [_instants(one) for one in shards]
    output_of(context).entry(
        {"out": str(out), "behind": sum(one["behind"] for one in shards)},
        parts=[
            Part("tables", shown, ("table", "engine", "rows", "parts", "last")),
            Part("shards", lags, ("queue", "shard", "behind", "copied")),
        ],
    )


@pipeline.command("verify")
def verify(
    context: typer.Context,
    *,
    out: OutOption = OUT,
    queue: QueuesOption = None,
    archive: Annotated[
        Path | None, typer.Option(metavar="DIR", help="An archive, and not the tables.")
    ] = None,
) -> int:
    """Compare the store with bronze, bronze with silver, silver with gold; exits 6 if they differ.

    With --archive, compare the files of an archive with its manifest instead.

    Example: dueline pipeline verify --out lake
    """
    if archive is None:
        checks = open_pipeline(context, out, queue, Engine.ARROW).verify()
    else:
        need("pyarrow")
        from dueline.spark.pipeline.archive import Archive  # noqa: PLC0415  (may not be installed)

        checks = Archive(archive).verify(progress(time.monotonic()))
    entries: list[Entry] = [
        {"check": one.name, "verdict": "good" if one.is_good else "bad", "finding": one.finding}
        for one in checks
    ]
    output_of(context).entries(entries, ("check", "verdict", "finding"))
    bad = [one for one in checks if not one.is_good]
    for one in bad:
        say_failure(
            "the tables do not hold what they should"
            if archive is None
            else "the archive does not hold what it should",
            why=f"{one.name}: {one.finding}",
            attempt="Run `dueline pipeline run` again; if that changes nothing, make them anew."
            if archive is None
            else "Take another copy of it, or remove the folder and archive again.",
            code=Exit.CHECK,
        )
    return Exit.CHECK if bad else Exit.DONE


@pipeline.command("audit")
@with_option_groups
def audit(
    context: typer.Context,
    *,
    out: OutOption = OUT,
    queue: QueuesOption = None,
    engine: EngineOption = Engine.SPARK,
    expected: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Ids of all jobs that were acknowledged, one a line."),
    ] = None,
    capacity: Annotated[
        list[str] | None,
        typer.Option(metavar="TASK=N", help="So many attempts of a task may run at once."),
    ] = None,
    order: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, help="So many less urgent jobs may be claimed while a job is ready."
        ),
    ] = None,
    attempts: Annotated[
        list[str] | None,
        typer.Option(metavar="TASK=N", help="Maximum number of failed attempts of a task."),
    ] = None,
    results: Annotated[
        bool, typer.Option("--results", help="Compare kept results with the history.")
    ] = False,
    period: PeriodOptions,
    cluster: ClusterOptions,
) -> int:
    """Prove from the history that no job was lost, early, or finished twice; exits 6 if one was.

    Copies what is new first. Says of each queue whether it is clean, failed, or not audited: that
    nothing was lost can be told only where the history is `all` or `arguments`. Jobs that were
    enqueued before the tables begin, or outside of --since and --until, are counted as unjudged.
    --capacity, --order, --attempts and --results apply further rules. The output names each rule
    that was not applied, and what it needs.

    Example: dueline pipeline audit --out lake --engine arrow --capacity shop.charge=3
    """
    known = None if expected is None else _ids_in(expected)
    made = open_pipeline(context, out, queue, engine, cluster)
    from dueline.spark.pipeline.audit_rules import Promises  # noqa: PLC0415
    from dueline.spark.pipeline.history_bounds import NO_END, EnqueuePeriod  # noqa: PLC0415  (may not be installed)

    since_us, until_us = period.read()
    said = made.audit(
        progress(time.monotonic()),
        expected=known,
        enqueued=EnqueuePeriod(since_us or 0, until_us or NO_END),
        promises=Promises(
            _numbers(capacity or (), "capacity"), order, _numbers(attempts or (), "attempts")
        ),
        with_results=results,
    )
    _show_audit(context, said)
    if not said.has_failed:
        return Exit.DONE
    return say_failure(
        "the audit failed",
        why=f"{len(said.findings)} finding(s): what must not be has happened",
        attempt="See `dueline jobs show ID` for the lives of the jobs.",
        code=Exit.CHECK,
    )


def _show_audit(context: typer.Context, said: "Judged") -> None:
    standings: list[Entry] = [
        _instants({**one._asdict(), "since_us": one.since_us or None}) for one in said.queues
    ]
    findings: list[Entry] = [_instants(one) for one in said.findings[:SHOWN]]
    unknown: list[Entry] = [
        {"rule": words, "needs": needs} for words, needs in said.not_known.items()
    ]
    columns = ("queue", "history", "verdict", "findings", "unjudged", "since")
    output = output_of(context)
    output.tables(
        [
            Part("queues", standings, columns),
            Part("findings", findings, ("queue", "verdict", "job_id", "attempt", "words")),
            Part("not known", unknown, ("rule", "needs")),
        ]
    )
    output.data(
        {
            "queues": standings,
            "findings": [_instants(one) for one in said.findings],
            "looked_for": list(said.looked_for),
            "not_audited": list(said.not_audited),
            "not_known": dict(said.not_known),
        }
    )
    note(f"looked for: {', '.join(said.looked_for)}; not: {', '.join(said.not_audited)}")


@pipeline.command("report")
@with_option_groups
def report(
    context: typer.Context,
    *,
    out: OutOption = OUT,
    file: Annotated[
        Path, typer.Option("--file", metavar="FILE", help="The page that is written.")
    ] = Path("report.html"),
    title: Annotated[str, typer.Option(metavar="TEXT", help="Its title.")] = "What queues did",
    period: PeriodOptions,
) -> None:
    """Write a page of pictures: lateness, throughput, backlog, fairness, failures.

    One file without scripts, of what the tables hold; of a period, in whole minutes, with --since
    and --until.

    Example: dueline pipeline report --out lake --file report.html
    """
    since_us, until_us = period.read()
    made = open_pipeline(context, out, None, Engine.ARROW)
    text = made.report(title, since_us=since_us, until_us=until_us)
    file.write_text(text, encoding="utf-8")
    output_of(context).text(str(file), {"file": str(file), "bytes": len(text.encode())})


@pipeline.command("past")
def past(
    context: typer.Context,
    *,
    at: Annotated[str, typer.Option(metavar="ISO", help="When: 2027-01-01T09:00:00+02:00.")],
    out: OutOption = OUT,
    queue: QueuesOption = None,
) -> None:
    """Tell what queues held at an instant, from their history in the tables.

    Only where the history is `all` can it be told; other queues are named `not audited`.

    Example: dueline pipeline past --at 2026-11-22T09:00:00Z --out lake
    """
    instant_us = asked_instant_us(read_instant(at), "--at")
    entries: list[Entry] = list(open_pipeline(context, out, queue, Engine.ARROW).past(instant_us))
    shown = ("queue", "history", "verdict", "waiting", "running", "dead", "done", "cancelled")
    output_of(context).entries(entries, shown)


@pipeline.command("doctor")
def doctor(context: typer.Context) -> int:
    """Tell whether Spark can run here: its package, Java, Arrow; exits 7 if not."""
    from dueline.spark.runtime.java import choose_java  # noqa: PLC0415  (no other command needs it)

    checks: list[Entry] = []
    for name in ("pyarrow", "pyspark", "pandas"):
        is_there = find_spec(name) is not None
        finding = "installed" if is_there else "missing: pip install 'dueline[spark]'"
        checks.append({"check": name, "verdict": _word(is_there), "finding": finding})
    try:
        finding, is_there = str(choose_java()), True
    except ConfigError as error:
        finding, is_there = f"{error.message} {error.hint}", False
    checks.append({"check": "java", "verdict": _word(is_there), "finding": finding})
    output_of(context).entries(checks, ("check", "verdict", "finding"))
    return Exit.DONE if all(one["verdict"] == "good" for one in checks) else Exit.CONFIG


def _word(is_good: bool) -> str:
    return "good" if is_good else "bad"


def _submit(
    context: typer.Context, words_of_run: Collection[str], out: Path, cluster: ClusterOptions
) -> str:
    """Write the line that runs the steps on a cluster; the store's password is not in it."""
    address = session_of(context).address
    found = find_spec("pyspark_dueline")
    assert found is not None, "it is a part of dueline"
    assert found.origin is not None
    entry = Path(found.origin).with_name("submitted.py")
    words = ["spark-submit", "--master", cluster.master]
    words += [word for one in cluster.conf or () for word in ("--conf", one)]
    words += ["--py-files", "dueline.zip", str(entry), "pipeline", "run", *words_of_run]
    words += ["--out", str(out)]
    if mask(address) == address:
        words += ["--store", address]
    return shlex.join(words)


def _numbers(words: Collection[str], option: str) -> Mapping[str, int]:
    """Read numbers by task."""
    hint = f"Write --{option} shop.charge=3."
    read = read_counts(words, what=option, hint=hint)
    for task, count in read.items():
        if not task or not count:
            raise BadInput(f"--{option} needs a task, and a number of at least 1.", hint=hint)
    return read


def _ids_in(file: Path) -> list[str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        raise NotFound(
            f"There is no file {file}.", hint="Give a file with an id a line."
        ) from error
    words = [line.strip() for line in lines if line.strip()]
    return [json.loads(word) if word.startswith('"') else word for word in words]


def _instants(entry: Mapping[str, Any]) -> Entry:
    """Show what is named `_us` as an instant."""
    return {
        name.removesuffix("_us"): Instant(value)
        if name.endswith("_us") and value is not None
        else value
        for name, value in entry.items()
    }
