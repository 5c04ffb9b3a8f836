"""`dueline pipeline watch`: raise alerts on the stream of attempts."""

import time
from contextlib import suppress
from typing import Annotated

import typer

from dueline.api.logs import LogSettings
from dueline.cli.errors import Exit
from dueline.cli.options import option
from dueline.cli.output import note
from dueline.cli.pipeline_options import (
    EngineOption,
    MasterOption,
    QueuesOption,
    StorageOption,
    need,
    place,
)
from dueline.cli.session import session_of
from dueline.core.durations import parse_span
from dueline.core.errors import BadInput, Conflict, LakeUnavailable, StoreUnavailable
from dueline.foresight.target import target_of


def watch(
    context: typer.Context,
    *,
    queue: QueuesOption = None,
    target: Annotated[
        list[str] | None, option("QUEUE=TARGET", 'Target, such as "mail=p99<2s"; repeatable.')
    ] = None,
    out: Annotated[
        str | None, option("DIR", "Folder or address of the Delta table `alerts`; default: none.")
    ] = None,
    every: Annotated[str, option("DURATION", "Interval of judging.")] = "10s",
    engine: EngineOption = "duckdb",
    master: MasterOption = "local[*]",
    storage_options: StorageOption = None,
) -> int:
    """Print alerts as they are raised and end, until Ctrl-C.

    Judges by the rules of the maintenance leader, from the attempts in the history: with Spark, a
    streaming query counts them. Alerts go to the log, to the table `alerts` with --out, and to the
    webhook of the application. Targets are those of the application unless --target sets them.

    Example: dueline pipeline watch --target "mail=p99<2s" --out lake
    """
    every_s = parse_span(every) / 1_000_000
    if every_s < 1:
        raise BadInput(f"--every must be at least 1s (got {every}).", hint="Use 10s.")
    targets = dict(_target(text) for text in target or ())
    spark_packages = ("pyspark", "pandas") if engine == "spark" else ()
    need("pyarrow", "deltalake", *spark_packages)
    table = None if out is None else place(out, storage_options)
    LogSettings().show_own()
    with session_of(context).queues() as queues, suppress(KeyboardInterrupt):
        from dueline.spark.pipeline.alerts import (  # noqa: PLC0415  (may not be installed)
            Watch,
            counting_here,
            counting_on_spark,
        )

        made = Watch(queues, queue or [], targets, table)
        if engine == "spark":
            from dueline.spark.runtime.session import session  # noqa: PLC0415

            spark = session("dueline alerts", master=master)
            counting = counting_on_spark(made, spark, session_of(context).address, every_s)
        else:
            counting = counting_here(made)
        with counting as count:
            note("Watching; press Ctrl-C to stop.")
            while True:
                try:
                    count()
                    made.judge()
                except (StoreUnavailable, LakeUnavailable, Conflict) as error:
                    note(f"Alerts have to wait: {error.message}")
                time.sleep(every_s)
    return Exit.INTERRUPTED


def _target(text: str) -> tuple[str, str]:
    queue, equals, target = text.partition("=")
    if not (queue and equals):
        raise BadInput(f"--target {text!r:.80} names no queue.", hint='Use "mail=p99<2s".')
    return queue, str(target_of(target))
