"""Options of the pipeline commands, and what they open."""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dueline.api.connect import mask
from dueline.cli.options import option, read_instant
from dueline.cli.output import Output, note
from dueline.cli.session import session_of
from dueline.core.clock import SystemClock, asked_instant_us
from dueline.core.errors import BadInput, ConfigError

if TYPE_CHECKING:
    from dueline.spark.pipeline.delta import Place
    from dueline.spark.pipeline.pipeline import Pipeline


Engine = Literal["spark", "duckdb"]
"""What builds the tables."""

OutOption = Annotated[str, option("DIR", "Folder or s3://, gs://, abfss:// address.", "--out")]
StorageOption = Annotated[
    Path | None, option("FILE", "JSON object of the object store's options.", "--storage-options")
]
EngineOption = Annotated[
    Engine, typer.Option("--engine", help="Build with Spark, or in this process (duckdb).")
]
MasterOption = Annotated[str, option("URL", "Spark master: local[*], spark://...", "--master")]
ConfOption = Annotated[
    list[str] | None, option("KEY=VALUE", "Spark setting; repeatable.", "--conf")
]
QueuesOption = Annotated[
    list[str] | None, option("NAME", "Only this queue; repeatable; default: all.", "--queue")
]
SinceOption = Annotated[
    str | None, option("TIMESTAMP", "Start of the period, inclusive.", "--since")
]
UntilOption = Annotated[str | None, option("TIMESTAMP", "End of the period, exclusive.", "--until")]
OUT = "lake"
LAKE = ("deltalake", "duckdb", "sqlglot")
EXTRAS = {"pandas": "spark", "pyiceberg": "iceberg"}
"""The extra that installs a package; others are of `lake`."""


@dataclass(frozen=True, slots=True)
class PeriodOptions:
    """The bounds of a period; both are optional."""

    since: SinceOption = None
    until: UntilOption = None

    def read(self) -> tuple[int | None, int | None]:
        """Return the bounds as timestamps in microseconds.

        Raises: BadInput: a bound is not a timestamp, or the period is empty.
        """
        bounds = (("--since", self.since), ("--until", self.until))
        since_us, until_us = (
            None if text is None else asked_instant_us(read_instant(text), option)
            for option, text in bounds
        )
        if since_us is not None and until_us is not None and since_us >= until_us:
            raise BadInput("--since must be before --until.", hint="Swap them.")
        return since_us, until_us


@dataclass(frozen=True, slots=True)
class TableOptions(PeriodOptions):
    """The tables of a command, their period, and how they are built."""

    out: OutOption = OUT
    queue: QueuesOption = None
    engine: EngineOption = "spark"
    master: MasterOption = "local[*]"
    conf: ConfOption = None
    storage_options: StorageOption = None


@dataclass(frozen=True, slots=True)
class LocalTableOptions(TableOptions):
    """The options of commands that read the tables in this process by default."""

    engine: EngineOption = "duckdb"


def open_pipeline(
    context: typer.Context,
    tables: TableOptions,
    *,
    target_us: int = 1_000_000,
    objective: float = 0.99,
    needs_store: bool = True,
) -> "Pipeline":
    """Return the pipeline after a check that its packages are installed.

    Args: needs_store: False for commands that read only the tables.

    Raises: ConfigError: a package is missing, or no store is named.
    """
    need("pyarrow", *LAKE, *(("pyspark", "pandas") if tables.engine == "spark" else ()))
    from dueline.spark.pipeline.engine import Settings  # noqa: PLC0415  (may not be installed)
    from dueline.spark.pipeline.pipeline import pipeline as make  # noqa: PLC0415

    session = session_of(context)
    address = session.address if needs_store else session.store or ""
    return make(
        place(tables.out, tables.storage_options),
        Settings(address, tables.queue or (), target_us, objective),
        engine=tables.engine,
        master=tables.master,
        conf=_conf_of(tables.conf or ()),
    )


def open_tables(context: typer.Context, out: str, storage_options: Path | None) -> "Pipeline":
    """Return the pipeline of a command that needs only the tables, in this process.

    Raises: ConfigError: a package is missing.
    """
    tables = LocalTableOptions(out=out, storage_options=storage_options)
    return open_pipeline(context, tables, needs_store=False)


def place(address: str, options: Path | None) -> "Place":
    """Return the place of tables.

    Raises: BadInput: the file cannot be read, or is not a JSON object of strings.
    """
    from dueline.spark.pipeline.delta import place_of  # noqa: PLC0415  (may not be installed)

    if options is None:
        return place_of(address)
    try:
        read = json.loads(options.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(
            f"The file {options} of --storage-options cannot be read: {error.strerror}.",
            hint="Check the path.",
        ) from error
    except ValueError:
        read = None
    if not isinstance(read, dict) or not all(isinstance(text, str) for text in read.values()):
        raise BadInput(
            f"{options} is not a JSON object of strings.",
            hint='Write {"AWS_REGION": "eu-central-1"}.',
        )
    return place_of(address, read)


def need(*packages: str) -> None:
    """Check that packages are installed.

    Raises: ConfigError: one is missing.
    """
    for name in packages:
        if find_spec(name) is None:
            raise ConfigError(
                f"The pipeline needs {name}, which is not installed.",
                hint=f"pip install 'dueline[{EXTRAS.get(packages[-1], 'lake')}]'",
            )


def _conf_of(words: Sequence[str]) -> dict[str, str]:
    pairs = [word.partition("=") for word in words]
    for key, equals, _ in pairs:
        if not (key and equals):
            raise BadInput(f"--conf {key!r} has no value.", hint="Use --conf KEY=VALUE.")
    return {key: value for key, _, value in pairs}


def progress(begun: float) -> Callable[[str], None]:
    """Return a function that prints progress with the elapsed time."""
    return lambda text: note(f"{time.monotonic() - begun:6.1f} s  {text}")


def output_of(context: typer.Context) -> Output:
    """Return the output of a command that does not open the store."""
    session = session_of(context)
    command = context.command_path.partition(" ")[2]
    meta = {"command": command}
    with suppress(ConfigError):
        meta["store"] = mask(session.address)
    return Output(session.form, SystemClock().wall_us(), meta)
