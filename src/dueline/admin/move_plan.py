"""The rehearsal of `dueline move`: what would move, what is waited for, what is refused."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from dueline.admin.move_records import (
    COPIED,
    LEASES,
    OF_ATTEMPTS,
    OWN,
    WITH_JOBS,
    all_records,
    kind_of,
)
from dueline.core.engine import Engine
from dueline.core.errors import ConfigError, Conflict
from dueline.core.job import is_away
from dueline.core.job_status import status_of
from dueline.core.lane import Lane
from dueline.core.pagination import jobs_in
from dueline.core.store_capabilities import ListsLanes
from dueline.jobs import attempt_lines, chunk_records, orders

MOVES: Final = "moves"
WAITED: Final = "waited for"
STAYS: Final = "stays"
REFUSED: Final = "refused"

_LANES: Final = 1000
_NAMES: Final = {
    "schedules": "schedules",
    "semaphores": "limits",
    "rates": "rates",
    "quotas": "quotas",
    "sequences": "sequences",
    LEASES: "leases",
    "unique": "unique keys",
    "results": "records of results",
    "queues": "queues with their settings",
    "flows": "workflows",
    orders.KIND: "places in order keys",
    chunk_records.KIND: "records of partial results",
    attempt_lines.KIND: "records of logged lines",
}
"""How a kind of records is called; other kinds follow from these."""


class Line(NamedTuple):
    """One line of the plan: how many of what, what happens to them, and why."""

    what: str
    many: int
    verdict: str
    why: str = ""


class Plan(NamedTuple):
    """What a move would do, one line for each kind of things."""

    lines: Sequence[Line]

    def refusals(self) -> list[Line]:
        """Return what a move refuses."""
        return [line for line in self.lines if line.verdict == REFUSED]

    def expect_possible(self) -> None:
        """Raise Conflict if something is refused; nothing was changed."""
        if lines := self.refusals():
            words = "; ".join(f"{line.many} {line.what}: {line.why}" for line in lines)
            raise Conflict(f"The store cannot be moved: {words}.", hint="See `move --dry-run`.")


def rehearse(
    source: Engine, target: Engine, *, is_begun: bool, leave_streams: bool = False
) -> Plan:
    """Count what a move would do, without changing anything.

    Args:
      source: The old store.
      target: The new store.
      is_begun: This move was begun before, so the target holds what it brought.
      leave_streams: Streams stay in the source.

    Raises: ConfigError: a store cannot list its lanes or records.
    """
    lines = [*_jobs(source), *_records(source, leave_streams=leave_streams), *_history(source)]
    return Plan(lines if is_begun else [*lines, *unfit(target)])


def _jobs(source: Engine) -> Iterator[Line]:
    now_us = source.time.latest_us()
    rows = (row for lane in lanes_of(source) for row in jobs_in(source.store, lane))
    states = Counter("taken" if is_away(row) else status_of(row, now_us) for row in rows)
    for state, many in sorted(states.items()):
        if state == "running":
            yield Line("running jobs", many, WAITED, "their claims are under way")
        else:
            yield Line(f"{state} jobs", many, MOVES)


def _records(source: Engine, *, leave_streams: bool) -> Iterator[Line]:
    kinds = Counter[str]()
    streams, spark = set[str](), set[str]()
    for partition, put in all_records(source.store):
        kind = kind_of(partition)
        if kind == "stream-groups":
            streams.add(f"{partition.partition('/')[2]} (group {put.key})")
        elif kind == "streams":
            streams.add(put.key)
        elif kind.startswith("spark-"):
            spark.add(partition)
        elif kind != "flows" or put.key == "layout":
            kinds[kind] += 1
    for kind, many in sorted(kinds.items()):
        if kind in _NAMES:
            yield Line(_NAMES[kind], many, MOVES)
        elif kind not in COPIED | WITH_JOBS | OWN and not kind.startswith("stream-"):
            yield Line(f"records of the kind {kind}", many, STAYS)
    if streams:
        names = ", ".join(sorted(streams))
        why = f"{names}; events and positions stay in the old store (--leave-streams)"
        yield Line("streams and groups", len(streams), STAYS if leave_streams else REFUSED, why)
    if spark:
        why = "end the queries of Spark, and start them anew on the new store"
        yield Line("records of Spark's writes", len(spark), STAYS, why)


def _history(source: Engine) -> Iterator[Line]:
    names = source.catalog.names()
    entries = [source.catalog.entry(name) for name in names]
    kept = [entry for entry in entries if entry is not None and entry.settings.history != "off"]
    if kept:
        why = "that of moved jobs; read the rest in the old store"
        yield Line("queues' histories", len(kept), MOVES, why)


def unfit(target: Engine) -> Iterator[Line]:
    """Yield what makes a target unfit: work, or declarations that the source's would meet."""
    is_free = OWN | OF_ATTEMPTS | {"queues", "results", LEASES, orders.KIND}
    kinds = Counter(kind_of(partition) for partition, _ in all_records(target.store))
    for kind in sorted(kinds.keys() - is_free):
        why = "the new store holds them; stop its workers and producers, and empty it"
        yield Line(_NAMES.get(kind, f"records of the kind {kind}"), kinds[kind], REFUSED, why)
    if lanes := sum(1 for _ in lanes_of(target)):
        yield Line("lanes with jobs", lanes, REFUSED, "the new store holds jobs")


def lanes_of(engine: Engine) -> Iterator[Lane]:
    """Yield the lanes of a store that have rows; one may be yielded twice.

    Raises: ConfigError: the store cannot list them.
    """
    store = engine.store
    if not isinstance(store, ListsLanes):
        raise ConfigError(f"A store of the kind {store.describe()['store']} cannot be moved.")
    after = None
    while True:
        page = store.lanes_with_rows(after=after, limit=_LANES)
        yield from page.lanes
        after = page.after
        if after is None:
            return
