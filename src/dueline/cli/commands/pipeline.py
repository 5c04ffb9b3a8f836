"""`dueline pipeline`: tables of the history, and checks of them."""

import json
import shlex
import time
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dueline.api.connect import mask
from dueline.cli.errors import Exit, say_failure
from dueline.cli.option_groups import with_option_groups
from dueline.cli.options import argument, option, read_counts, read_instant
from dueline.cli.output import Entry, Instant, Part, note
from dueline.cli.pipeline_options import (
    LAKE,
    OUT,
    LocalTableOptions,
    OutOption,
    PeriodOptions,
    QueuesOption,
    StorageOption,
    TableOptions,
    need,
    open_pipeline,
    open_tables,
    output_of,
    place,
    progress,
)
from dueline.cli.session import session_of
from dueline.core.clock import SystemClock, asked_instant_us, to_datetime
from dueline.core.durations import parse_span
from dueline.core.errors import BadInput, ConfigError, NotFound

if TYPE_CHECKING:
    from dueline.spark.pipeline.audit import Judged
    from dueline.spark.pipeline.pipeline import Pipeline

SHOWN = 20

pipeline = typer.Typer(help="Build and check tables of the job history.")


@pipeline.command("run")
@with_option_groups
def run(
    context: typer.Context,
    steps: Annotated[
        list[str] | None, argument("STEP", "bronze, silver or gold; default: all.")
    ] = None,
    *,
    tables: TableOptions,
    once: Annotated[bool, typer.Option("--once", help="Run once (default).")] = False,
    every: Annotated[str | None, option("DURATION", "Repeat with this pause.")] = None,
    target: Annotated[str, option("DURATION", "Start latency objective.")] = "1s",
    objective: Annotated[float, option("SHARE", "Share of starts within --target.")] = 0.99,
    print_submit: Annotated[
        bool, typer.Option("--print-submit", help="Print the spark-submit command only.")
    ] = False,
) -> int:
    """Update the tables from the history.

    Bronze holds the history as it is, silver one row per attempt, gold counts and histograms per
    minute and the tables slo, fairness, suspicious, poison and flow. They are Delta tables. Each
    run processes what is new; an interrupted run continues where it stopped. Tables that were
    created with --since or --until keep that period.

    Example: dueline pipeline run --out lake --engine duckdb
    """
    if once and every is not None:
        raise BadInput("--once and --every exclude each other.", hint="Pass one of them.")
    if not 0 < objective < 1:
        raise BadInput(f"--objective must be between 0 and 1 (got {objective}).", hint="Use 0.99.")
    if print_submit:
        names = [word for queue in tables.queue or () for word in ("--queue", queue)]
        names += [] if tables.since is None else ["--since", tables.since]
        names += [] if tables.until is None else ["--until", tables.until]
        print(_submit(context, [*(steps or ()), *names], tables))  # noqa: T201
        return Exit.DONE
    since_us, until_us = tables.read()
    made = open_pipeline(context, tables, target_us=parse_span(target), objective=objective)
    every_s = None if every is None else parse_span(every) / 1e6
    while True:
        begun = time.monotonic()
        try:
            done = made.run(steps or (), progress(begun), since_us=since_us, until_us=until_us)
        except KeyboardInterrupt:
            return Exit.INTERRUPTED
        entries: list[Entry] = [step._asdict() for step in done]
        output_of(context).entries(entries, ("name", "rows", "files"), out=tables.out)
        if every_s is None:
            return Exit.DONE
        try:
            SystemClock().sleep(every_s)
        except KeyboardInterrupt:
            return Exit.INTERRUPTED


@pipeline.command("status")
def status(
    context: typer.Context,
    *,
    out: OutOption = OUT,
    queue: QueuesOption = None,
    storage_options: StorageOption = None,
) -> None:
    """Show what the tables hold and their lag behind the store.

    Example: dueline pipeline status --out lake
    """
    tables, shards = _read_tables(context, out, queue, storage_options).status()
    shown: list[Entry] = [_instants(table) for table in tables]
    lags: list[Entry] = [_instants(shard) for shard in shards]
    output_of(context).entry(
        {"out": out, "behind": sum(shard["behind"] for shard in shards)},
        parts=[
            Part("tables", shown, ("table", "rows", "files", "last", "seconds_behind")),
            Part("shards", lags, ("queue", "shard", "behind", "copied")),
        ],
    )


@pipeline.command("verify")
def verify(
    context: typer.Context,
    *,
    out: OutOption = OUT,
    queue: QueuesOption = None,
    archive: Annotated[str | None, option("DIR", "Check an archive instead of the tables.")] = None,
    storage_options: StorageOption = None,
) -> int:
    """Compare the tables with the store and with each other.

    With --archive, reads the files of an archive and compares them with its log instead. Exits 6
    if they differ. A table that is only behind bronze, as after `audit`, is no failure.

    Example: dueline pipeline verify --out lake
    """
    if archive is None:
        made = _read_tables(context, out, queue, storage_options)
        checks = made.verify(progress(time.monotonic()))
    else:
        need("pyarrow", *LAKE)
        from dueline.spark.pipeline import archive as archives  # noqa: PLC0415  (may not be installed)

        checks = archives.verify(place(archive, storage_options), progress(time.monotonic()))
    entries: list[Entry] = [
        {"check": check.name, "verdict": check.verdict, "finding": check.finding}
        for check in checks
    ]
    output_of(context).entries(entries, ("check", "verdict", "finding"))
    if any(check.is_behind for check in checks):
        note("Some tables lack what was copied since: update them with `dueline pipeline run`.")
    bad = [check for check in checks if check.verdict == "bad"]
    for finding in bad:
        say_failure(
            "the tables are incomplete or damaged"
            if archive is None
            else "the archive is incomplete or damaged",
            why=f"{finding.name}: {finding.finding}",
            attempt="Run `dueline pipeline run` again; if that does not help, rebuild the tables."
            if archive is None
            else "Restore a copy, or delete the folder and archive again.",
            code=Exit.CHECK,
        )
    return Exit.CHECK if bad else Exit.DONE


@pipeline.command("audit")
@with_option_groups
def audit(
    context: typer.Context,
    *,
    tables: TableOptions,
    expected: Annotated[
        Path | None, option("FILE", "Ids of all acknowledged jobs, one per line.")
    ] = None,
    capacity: Annotated[
        list[str] | None, option("TASK=N", "Maximum number of concurrent attempts of a task.")
    ] = None,
    order: Annotated[
        int | None, option("N", "Maximum number of less urgent jobs claimed first.", min=0)
    ] = None,
    attempts: Annotated[
        list[str] | None, option("TASK=N", "Maximum number of failed attempts of a task.")
    ] = None,
    results: Annotated[
        bool, typer.Option("--results", help="Compare stored results with the history.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Judge all jobs, not only those that may have changed.")
    ] = False,
) -> int:
    """Check that no job was lost, early or finished twice.

    Copies new rows first. Only jobs with new rows and those that had not ended at the last audit
    are judged again; --full judges all, and --capacity, --order and --expected read all.

    Each queue is clean, failed or not audited; lost jobs are only detected in queues with the
    history `all` or `arguments`. Jobs from before the tables begin, or outside --since and
    --until, are counted as unjudged. --capacity, --order, --attempts and --results apply further
    rules; the output lists each rule that was not applied, and what it needs. Exits 6 if a check
    fails.

    Example: dueline pipeline audit --out lake --engine duckdb --capacity shop.charge=3
    """
    known = None if expected is None else _ids_in(expected)
    made = open_pipeline(context, tables)
    from dueline.jobs.audit_rules import Promises  # noqa: PLC0415
    from dueline.spark.pipeline.history_bounds import NO_END, EnqueuePeriod  # noqa: PLC0415  (may not be installed)

    since_us, until_us = tables.read()
    said = made.audit(
        progress(time.monotonic()),
        expected=known,
        enqueued=EnqueuePeriod(since_us or 0, until_us or NO_END),
        promises=Promises(
            _numbers(capacity or (), "capacity"), order, _numbers(attempts or (), "attempts")
        ),
        with_results=results,
        is_full=full,
    )
    _show_audit(context, said)
    if not said.has_failed:
        return Exit.DONE
    return say_failure(
        "the audit failed",
        why=f"The audit has {len(said.findings)} finding(s).",
        attempt="Use `dueline jobs show ID` for the history of a job.",
        code=Exit.CHECK,
    )


def _show_audit(context: typer.Context, said: "Judged") -> None:
    standings: list[Entry] = [
        _instants({**standing._asdict(), "since_us": standing.since_us or None})
        for standing in said.queues
    ]
    findings: list[Entry] = [_instants(finding) for finding in said.findings[:SHOWN]]
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
            "findings": [_instants(finding) for finding in said.findings],
            "looked_for": list(said.looked_for),
            "not_audited": list(said.not_audited),
            "not_known": dict(said.not_known),
        }
    )
    for queue in said.queues:
        if queue.since_us and queue.verdict != "not audited":
            begin = to_datetime(queue.since_us).isoformat(timespec="seconds")
            note(
                f"{queue.queue}: the tables begin at {begin}; jobs enqueued before are not judged."
            )
    note(f"Audited: {', '.join(said.looked_for)}; not audited: {', '.join(said.not_audited)}")


@pipeline.command("report")
@with_option_groups
def report(
    context: typer.Context,
    *,
    out: OutOption = OUT,
    file: Annotated[Path, option("FILE", "File to write.", "--file")] = Path("report.html"),
    title: Annotated[str, option("TEXT", "Title of the report.")] = "Queue report",
    storage_options: StorageOption = None,
    period: PeriodOptions,
) -> None:
    """Write an HTML report of the tables.

    One file without scripts: what was lost, late or unfair, and charts. --since
    and --until select whole minutes.

    Example: dueline pipeline report --out lake --file report.html
    """
    since_us, until_us = period.read()
    made = open_tables(context, out, storage_options)
    text = made.report(title, since_us=since_us, until_us=until_us)
    file.write_text(text, encoding="utf-8")
    output_of(context).text(str(file), {"file": str(file), "bytes": len(text.encode())})


@pipeline.command("past")
def past(
    context: typer.Context,
    *,
    at: Annotated[str, option("TIMESTAMP", "Time: 2027-01-01T09:00:00+02:00.")],
    out: OutOption = OUT,
    queue: QueuesOption = None,
    storage_options: StorageOption = None,
) -> None:
    """Show what queues held at a past time.

    Only known for queues with the history `all` or `arguments`; others are `not audited`.

    Example: dueline pipeline past --at 2026-11-22T09:00:00Z --out lake
    """
    instant_us = asked_instant_us(read_instant(at), "--at")
    entries: list[Entry] = list(_read_tables(context, out, queue, storage_options).past(instant_us))
    shown = tuple(entries[0]) if entries else ("queue", "history", "verdict")
    output_of(context).entries(entries, shown)


@pipeline.command("init")
def init(
    context: typer.Context,
    folder: Annotated[Path, argument("DIR", "Folder of the project.")],
    *,
    sdp: Annotated[bool, typer.Option("--sdp", help="Use Spark Declarative Pipelines.")] = False,
) -> None:
    """Write a project of Spark Declarative Pipelines.

    It follows the history of the store. Its first lines say how to run it. A password is not
    written: the project reads DUELINE_STORE.

    Example: dueline pipeline init shop-history --sdp
    """
    from dueline.spark.pipeline.declarative import make_project  # noqa: PLC0415  (as the pipeline's)

    if not sdp:
        raise BadInput("There is one kind of project.", hint="Pass --sdp.")
    made = make_project(folder, session_of(context).address)
    output_of(context).entries([{"file": str(path)} for path in made], ("file",))


@pipeline.command("doctor")
def doctor(context: typer.Context) -> int:
    """Check that Spark can run here.

    Checks its packages and Java. Exits 7 if one is missing.
    """
    from dueline.spark.runtime.java import choose_java  # noqa: PLC0415  (no other command needs it)

    checks: list[Entry] = []
    for name in ("pyarrow", *LAKE, "pyspark", "pandas"):
        is_there = find_spec(name) is not None
        finding = "installed" if is_there else "missing: pip install 'dueline[spark]'"
        checks.append({"check": name, "verdict": _word(is_there), "finding": finding})
    try:
        finding, is_there = str(choose_java()), True
    except ConfigError as error:
        finding, is_there = f"{error.message} {error.hint}", False
    checks.append({"check": "java", "verdict": _word(is_there), "finding": finding})
    output_of(context).entries(checks, ("check", "verdict", "finding"))
    return Exit.DONE if all(check["verdict"] == "good" for check in checks) else Exit.CONFIG


def _read_tables(
    context: typer.Context, out: str, queue: list[str] | None, storage_options: Path | None
) -> "Pipeline":
    """Return the pipeline for reading its tables in this process."""
    tables = LocalTableOptions(out=out, queue=queue, storage_options=storage_options)
    return open_pipeline(context, tables)


def _word(is_good: bool) -> str:
    return "good" if is_good else "bad"


def _submit(context: typer.Context, words_of_run: Collection[str], tables: TableOptions) -> str:
    """Return the command that runs the steps on a cluster, without the store's password."""
    address = session_of(context).address
    spec = find_spec("pyspark_dueline")
    assert spec is not None, "it is a part of dueline"
    assert spec.origin is not None
    entry = Path(spec.origin).with_name("submitted.py")
    words = ["spark-submit", "--master", tables.master]
    words += [word for setting in tables.conf or () for word in ("--conf", setting)]
    words += ["--py-files", "dueline.zip", str(entry), "pipeline", "run", *words_of_run]
    words += ["--out", tables.out]
    if tables.storage_options is not None:
        words += ["--storage-options", str(tables.storage_options)]
    if mask(address) == address:
        words += ["--store", address]
    return shlex.join(words)


def _numbers(words: Collection[str], option: str) -> Mapping[str, int]:
    """Return numbers by task."""
    hint = f"Use --{option} shop.charge=3."
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
            f"There is no file {file}.", hint="Use a file with one id per line."
        ) from error
    words = [line.strip() for line in lines if line.strip()]
    return [json.loads(word) if word.startswith('"') else word for word in words]


def _instants(entry: Mapping[str, Any]) -> Entry:
    """Return an entry whose `_us` fields are timestamps."""
    return {
        name.removesuffix("_us"): Instant(value)
        if name.endswith("_us") and value is not None
        else value
        for name, value in entry.items()
    }
