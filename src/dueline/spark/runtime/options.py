"""Options of sources and sinks."""

import os
import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any, Final

from dueline.core.clock import SECOND_US
from dueline.core.durations import parse_span
from dueline.core.errors import BadInput
from dueline.core.queue_catalog import Catalog
from dueline.core.queue_settings import SHARDS_MAX

FOLLOWED: Final = ("events", "attempts", "stream")
TABLES: Final = (*FOLLOWED, "jobs", "results", "shards", "workers")
BOTH: Final = ("store", "queue")
READING: Final = (
    *BOTH, "table", "stream", "shards", "minPartitions", "fetchSize", "pushdown",
    "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp", "failOnDataLoss",
)  # fmt: skip
FOLLOWING: Final = (
    *READING, "maxRowsPerTrigger", "minRowsPerTrigger", "maxTriggerDelay", "pollInterval",
    "consumer",
)  # fmt: skip
WRITING: Final = (
    *BOTH,
    "task",
    "idColumns",
    "chunkRows",
    "writeId",
    "sinkId",
    "keepDays",
    "writeMode",
    "onConflict",
    "onOtherQueue",
    "onUnique",
    "uniqueWithin",
)
ALIASES: Final = {
    "maxoffsetspertrigger": "maxRowsPerTrigger",
    "minoffsetspertrigger": "minRowsPerTrigger",
    "subscribe": "stream",
}
OF_SPARK: Final = ("path", "checkpointlocation", "queryname")
"""Options that Spark passes on and that are ignored."""

OF_A_TABLE: Final = ("owner", "provider")
"""Options that Spark passes for CREATE TABLE, instead of those of the statement."""

_RANGE: Final = re.compile(r"\s*(\d{1,5})\s*(?:-\s*(\d{1,5})\s*)?")


def cores_of(spark: Any) -> int | None:  # noqa: ANN401  (a session; None: it does not tell)
    """Return how many tasks a session's cluster runs at once."""
    from pyspark.errors import PySparkException  # noqa: PLC0415  (duckdb needs no Spark)

    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:  # Spark Connect
        return None


def usual_parts() -> int:
    """Return the number of tasks if no session says it: Spark passes none to a source."""
    return max(2, os.cpu_count() or 1)


def option_texts(options: Mapping[str, object]) -> dict[str, str]:
    """Return options as Spark takes them: strings."""
    return {key: _text(value) for key, value in options.items()}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Options:
    """The options of one source or sink; names are case-insensitive.

    Values may contain a store's password, so they are never shown.
    """

    def __init__(self, given: Mapping[str, str], known: Collection[str]) -> None:
        names = {name.lower(): name for name in known} | {
            alias: name for alias, name in ALIASES.items() if name in known
        }
        self._values: dict[str, str] = {}
        for key, value in given.items():
            if key.lower() in OF_SPARK:
                continue
            name = names.get(key.lower())
            if name is None and key.lower() in OF_A_TABLE:
                raise BadInput(
                    "CREATE TABLE ... USING dueline does not work: Spark passes it no options.",
                    hint="Use CREATE TEMPORARY VIEW, with OPTIONS (store '...').",
                )
            if name is None:
                near = get_close_matches(key.lower(), names, n=1)
                raise BadInput(
                    f"The format dueline has no option {key!r} here.",
                    hint=f"Did you mean {names[near[0]]}?"
                    if near
                    else f"Use one of {', '.join(sorted(known))}.",
                )
            if name in self._values:
                raise BadInput(f"The option {name} is set twice.", hint="Set it once.")
            self._values[name] = value

    def __repr__(self) -> str:
        return f"<Options {', '.join(self._values)}>"

    def text(self, name: str, default: str = "") -> str:
        """Return a string."""
        return self._values.get(name, default).strip()

    def number(self, name: str, default: int, *, least: int = 1) -> int:
        """Return an integer.

        Raises:
            BadInput: The value is not an integer, or is less than `least`.
        """
        text = self.text(name, str(default))
        if not text.removeprefix("-").isdecimal() or int(text) < least:
            raise BadInput(f"{name} must be an integer of at least {least} (got {text!r}).")
        return int(text)

    def seconds(self, name: str, default: str) -> float:
        """Return a duration such as `30s` or `15m`, in seconds.

        Raises:
            BadInput: The value is not a duration.
        """
        try:
            return parse_span(self.text(name, default)) / SECOND_US
        except BadInput as error:
            raise BadInput(f"{name}: {error.message}", hint=error.hint) from None

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a boolean."""
        text = self.text(name, str(default)).lower()
        if text not in ("true", "false"):
            raise BadInput(f"{name} must be true or false (got {text!r}).")
        return text == "true"

    def one_of(self, name: str, choices: Collection[str], default: str) -> str:
        """Return one of several words."""
        text = self.text(name, default)
        if text not in choices:
            near = get_close_matches(text, choices, n=1)
            raise BadInput(
                f"{name}={text!r} is unknown.",
                hint=f"Did you mean {near[0]}?" if near else f"Use one of {', '.join(choices)}.",
            )
        return text

    def names(self, name: str) -> list[str]:
        """Return a comma-separated list."""
        return [part.strip() for part in self.text(name).split(",") if part.strip()]

    def shards(self) -> frozenset[int] | None:
        """Return the shards of a list such as `0-3,7`; None for all."""
        if not self.text("shards"):
            return None
        shards: set[int] = set()
        for part in self.names("shards"):
            match = _RANGE.fullmatch(part)
            last = int(match[2] or match[1]) if match else SHARDS_MAX
            if match is None or last >= SHARDS_MAX:
                raise BadInput(f"shards={part!r} is malformed.", hint="Use 0-3,7.")
            shards.update(range(int(match[1]), last + 1))
        return frozenset(shards)

    def store(self) -> str:
        """Return the store's URL.

        Raises:
            BadInput: The option is missing.
        """
        url = self.text("store")
        if not url:
            raise BadInput(
                "The option store is missing.",
                hint='Set .option("store", "sqlite:///jobs.db"). Spark passes no options to tables'
                " of CREATE TABLE: use CREATE TEMPORARY VIEW.",
            )
        return url


def chosen_queues(options: Options, catalog: Catalog) -> list[str]:
    """Return the requested queues; all queues by default.

    Raises:
        NotFound: There is no such queue.
    """
    if not options.names("queue"):
        return catalog.names()
    return [name for queue in options.names("queue") for name in catalog.chosen(queue)]
