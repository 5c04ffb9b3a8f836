"""What the caller asks of a source or sink."""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from dueline.api.connect import mask, open_queues, open_store, split_address
from dueline.core.clock import SystemClock
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, ConfigError
from dueline.core.queue_catalog import Catalog
from dueline.core.queue_settings import SHARDS_MAX
from dueline.core.store import Store

FOLLOWED: Final = ("events", "attempts", "stream")
TABLES: Final = (*FOLLOWED, "jobs", "results", "shards", "workers")
BOTH: Final = ("store", "queue")
READING: Final = (
    *BOTH, "table", "stream", "shards", "minPartitions", "fetchSize", "pushdown",
    "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp", "failOnDataLoss",
)  # fmt: skip
FOLLOWING: Final = (
    *READING, "maxRowsPerTrigger", "pollInterval", "consumer",
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
)
ALIASES: Final = {"maxoffsetspertrigger": "maxRowsPerTrigger", "subscribe": "stream"}
OF_SPARK: Final = ("path", "checkpointlocation", "queryname")
"""Options that Spark hands on, and that say nothing to us."""

_RANGE: Final = re.compile(r"\s*(\d{1,5})\s*(?:-\s*(\d{1,5})\s*)?")


def option_texts(options: Mapping[str, object]) -> dict[str, str]:
    """Return options as Spark takes them: strings."""
    return {key: _text(value) for key, value in options.items()}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Options:
    """The options of one source or sink, by name whatever their case; each is known, or refused.

    They may hold a store's password, and so are never shown.
    """

    def __init__(self, given: Mapping[str, str], known: Collection[str]) -> None:
        """Take what was given, and the names that are known.

        Raises: BadInput: one that is not known, or given twice.
        """
        names = {name.lower(): name for name in known} | {
            alias: name for alias, name in ALIASES.items() if name in known
        }
        self._values: dict[str, str] = {}
        for key, value in given.items():
            if key.lower() in OF_SPARK:
                continue
            name = names.get(key.lower())
            if name is None:
                near = get_close_matches(key.lower(), names, n=1)
                raise BadInput(
                    f"The source dueline has no option {key!r} here.",
                    hint=f"Did you mean {names[near[0]]}?"
                    if near
                    else f"There is {', '.join(sorted(known))}.",
                )
            if name in self._values:
                raise BadInput(f"The option {name} is given twice.", hint="Give it once.")
            self._values[name] = value

    def __repr__(self) -> str:
        return f"<Options {', '.join(self._values)}>"

    def text(self, name: str, default: str = "") -> str:
        """Read a text."""
        return self._values.get(name, default).strip()

    def number(self, name: str, default: int, *, least: int = 1) -> int:
        """Read a whole number.

        Raises: BadInput: it is none, or smaller than `least`.
        """
        text = self.text(name, str(default))
        if not text.removeprefix("-").isdecimal() or int(text) < least:
            raise BadInput(f"{name}={text!r} is no whole number of {least} or more.")
        return int(text)

    def flag(self, name: str, *, default: bool) -> bool:
        """Read true or false."""
        text = self.text(name, str(default)).lower()
        if text not in ("true", "false"):
            raise BadInput(f"{name}={text!r} is neither true nor false.")
        return text == "true"

    def one_of(self, name: str, choices: Collection[str], default: str) -> str:
        """Read one of some words."""
        text = self.text(name, default)
        if text not in choices:
            near = get_close_matches(text, choices, n=1)
            raise BadInput(
                f"{name}={text!r} is not known.",
                hint=f"Did you mean {near[0]}?" if near else f"Use one of {', '.join(choices)}.",
            )
        return text

    def names(self, name: str) -> list[str]:
        """Read a list with commas between."""
        return [part.strip() for part in self.text(name).split(",") if part.strip()]

    def shards(self) -> frozenset[int] | None:
        """Read which shards, such as `0-3,7`; None for all."""
        if not self.text("shards"):
            return None
        found: set[int] = set()
        for part in self.names("shards"):
            match = _RANGE.fullmatch(part)
            last = int(match[2] or match[1]) if match else SHARDS_MAX
            if match is None or last >= SHARDS_MAX:
                raise BadInput(f"shards={part!r} names no shards.", hint="Write 0-3,7.")
            found.update(range(int(match[1]), last + 1))
        return frozenset(found)

    def store(self) -> str:
        """Read the store's address, absolute where it names a file.

        Raises: BadInput: there is none.
        """
        url = self.text("store")
        if not url:
            raise BadInput(
                "No store is named.",
                hint='Say .option("store", "sqlite:///jobs.db"). Spark hands no options on to'
                " what CREATE TABLE made: use CREATE TEMPORARY VIEW.",
            )
        parts = split_address(url)
        if parts.scheme == "memory":
            raise ConfigError(
                "A memory store lives in one process, and Spark's workers are others.",
                hint="Use sqlite:///jobs.db, or a store on a server.",
            )
        if parts.scheme == "sqlite" and len(parts.path) > 1:
            path = Path(unquote(parts.path)[1:]).absolute()
            return f"sqlite:///{path}" + (f"?{parts.query}" if parts.query else "")
        return url


def open_existing(url: str) -> Store:
    """Open the store that an address names; nothing is made where there is none.

    Raises: ConfigError: there is no such file, or no such kind of store.
    """
    parts = split_address(url)
    if parts.scheme == "sqlite" and not Path(unquote(parts.path)[1:]).is_file():
        raise ConfigError(
            f"There is no queue file {mask(url)}.",
            hint="Is this the right store? What enqueues or runs jobs makes it.",
        )
    return open_store(url)


@contextmanager
def existing_engine(url: str) -> Iterator[Engine]:
    """Have the engine on a store that is there, for as long as the block lasts.

    Raises: ConfigError: as `open_existing`.
    """
    with closing(open_existing(url)) as store:
        yield open_queues(url, store, clock=SystemClock()).engine


def chosen_queues(options: Options, catalog: Catalog) -> list[str]:
    """Name the queues that are asked for; all of them by default.

    Raises: NotFound: there is no such queue.
    """
    if not options.names("queue"):
        return catalog.names()
    return [name for queue in options.names("queue") for name in catalog.chosen(queue)]
