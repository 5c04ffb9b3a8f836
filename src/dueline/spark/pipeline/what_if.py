"""Simulations of the copied history: which jobs, with which settings, by which engine."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from dueline.core.engine import Engine
from dueline.core.errors import BadInput, NotFound
from dueline.core.lane import LIMIT_MARK
from dueline.core.limit_names import semaphore_of
from dueline.core.store_capabilities import PREFETCH_LEAD_US
from dueline.foresight.replay import Simulator, Task, outcomes
from dueline.foresight.scenario import Changes, Rules
from dueline.foresight.summary import Outcome
from dueline.limits import rate, semaphore
from dueline.limits.semaphore import CAPACITY_DEFAULT
from dueline.spark.pipeline.engine import Say
from dueline.spark.pipeline.queries import Queries, View, lines_of, text_of
from dueline.spark.pipeline.recordings import SEPARATOR, records_in

IN_FORCE: Final = Changes()

_USED: Final = """
    SELECT DISTINCT
        queue, worker, task, coalesce(limits, '') AS limits, tenant,
        outcome IN ('suspended', 'restarted', 'stopped') AS is_function
    FROM rows
    WHERE worker <> ''
        AND unix_micros(greatest(due, enqueued)) >= :since_us
        AND unix_micros(greatest(due, enqueued)) < :until_us"""


class Period(NamedTuple):
    """Which jobs are simulated, by when they were ready; and of which queues, all if empty."""

    since_us: int
    until_us: int
    queues: Sequence[str] = ()


class Prepared(NamedTuple):
    """A simulator of a period, and what is in force.

    Attributes:
      simulator: Simulates the jobs of the period.
      capacities: Of the semaphores that they have.
      shards: The most shards of a queue.
      is_far: Whether the store is on the network, where each worker prefers some shards.
      functions: Names of the tasks that are durable functions, as far as the history shows it.
    """

    simulator: Simulator
    capacities: Mapping[str, int]
    shards: int = 1
    is_far: bool = False
    functions: Sequence[str] = ()

    def shards_for(self, workers: int) -> int:
        """Return the number of shards for a number of workers."""
        return max(self.shards, workers) if self.is_far else self.shards


class Used(NamedTuple):
    """What the jobs of a period used.

    pools: the pool of each queue. known: limits that exist. functions: durable ones among the
    tasks.
    """

    pools: Mapping[str, int]
    tasks: Collection[str]
    limits: Collection[str]
    known: Collection[str]
    tenants: Collection[str]
    functions: Sequence[str] = ()


def rules_of(engine: Engine, names: Sequence[str]) -> Rules:
    """Return the settings that are in force."""
    settings = {name: engine.catalog.settings(name) for name in names}
    weights = {tenant: n for setting in settings.values() for tenant, n in setting.weights}
    return Rules(
        semaphore.capacities(engine.store),
        rate.rates(engine.store),
        weights,
        {name: queue.aging_us for name, queue in settings.items() if queue.aging_us},
        {name: queue.width_us for name, queue in settings.items()},
        engine.store.scope == "network",
    )


def expect_history(engine: Engine, queues: Sequence[str]) -> None:
    """Check that queues keep a history.

    Raises: BadInput: one keeps none. NotFound: there is no such queue.
    """
    for name in queues:
        if engine.catalog.settings(name).history == "off":
            raise BadInput(
                f"The queue {name} keeps no history.",
                hint='Set history="attempts", and try again when jobs have run.',
            )


def used_in(queries: Queries, rows: View, period: Period, rules: Rules) -> Used:
    """Return what the jobs of a period used.

    Raises: NotFound: no job of the queues ran.
    """
    lines = lines_of(queries.run(_USED, {"rows": rows}, period._asdict()))
    pools = _pools((line["queue"], line["worker"]) for line in lines)
    chosen = {pools[name] for name in period.queues if name in pools}
    if not lines or (period.queues and not chosen):
        what = f"of {', '.join(period.queues)} " if period.queues else ""
        raise NotFound(
            f"The history has no job {what}that ran in this period.",
            hint="Use another --since, --until or --queue.",
        )
    if period.queues:
        pools = {name: pool for name, pool in pools.items() if pool in chosen}
    lines = [line for line in lines if line["queue"] in pools]
    names = {name for line in lines for name in line["limits"].split(LIMIT_MARK) if name}
    limits = set(map(semaphore_of, names))
    known = {*limits, *rules.capacities, *rules.rates}
    tasks, tenants = ({line[name] for line in lines} for name in ("task", "tenant"))
    functions = sorted({line["task"] for line in lines if line["is_function"]})
    return Used(pools, tasks, limits, known, tenants, functions)


def not_known_of(functions: Sequence[str]) -> str:
    """Return what no simulation can know of durable functions; empty without one."""
    if not functions:
        return ""
    return (
        f"Durable functions ({', '.join(functions)}) run as often, and wait as long, as they really"
        " did: with other settings, it is not known when signals come, when called jobs end, and"
        " how often the functions run."
    )


def _pools(pairs: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Number the groups of queues that have a worker in common."""
    group: dict[str, str] = {}

    def root(name: str) -> str:
        while group.setdefault(name, name) != name:
            name = group[name]
        return name

    queues = set()
    for queue, worker in sorted(set(pairs)):
        queues.add(queue)
        group[root(queue)] = root(f"{SEPARATOR}{worker}")
    roots = {name: root(name) for name in sorted(queues)}
    numbers = {top: n for n, top in enumerate(dict.fromkeys(roots.values()))}
    return {name: numbers[top] for name, top in roots.items()}


def capacities_of(used: Used, rules: Rules) -> dict[str, int]:
    """Return the capacities of the semaphores that jobs have."""
    return {
        name: rules.capacities.get(name, CAPACITY_DEFAULT)
        for name in sorted(used.limits)
        if name not in rules.rates
    }


def check(settings: Sequence[Changes], used: Used) -> None:
    """Check that settings name what there is.

    Raises: BadInput: a task, limit or tenant is unknown.
    """
    for changes in settings:
        for what, names, known in (
            ("task", changes.priorities, used.tasks),
            ("limit", (*changes.capacities, *changes.rates), used.known),
            ("tenant", changes.weights, used.tenants),
        ):
            for name in names:
                if name not in known:
                    examples = ", ".join(sorted(filter(None, known))[:5]) or "none"
                    raise BadInput(
                        f"No job of this period has the {what} {name!r:.80}.",
                        hint=f"Those of the period: {examples}.",
                    )


def rows_of(queries: Queries, rows: View, period: Period, used: Used) -> Any:  # noqa: ANN401  (of the engine)
    """Return the attempts to simulate, as a result of `sql/simulated.sql`."""
    pools = pa.table({"queue": list(used.pools), "pool": pa.array(used.pools.values(), pa.int64())})
    values = {
        "since_us": period.since_us, "until_us": period.until_us, "lead_us": PREFETCH_LEAD_US,
    }  # fmt: skip
    return queries.run(text_of("simulated"), {"rows": rows, "pools": pools}, values)


class Replayed(NamedTuple):
    """What really happened, the replay with the settings in force, and one outcome a setting."""

    real: Outcome
    in_force: Outcome
    changed: Sequence[tuple[Changes, Outcome]]


def replayed(simulator: Simulator, settings: Sequence[Changes]) -> Replayed:
    """Replay a period: as it was, with the settings in force, and with others."""
    tasks = [Task(None), Task(IN_FORCE), *map(Task, settings)]
    real, in_force, *others = simulator.run(tasks)
    return Replayed(real, in_force, list(zip(settings, others, strict=True)))


class LocalSimulator:
    """Runs simulations in this process, one after the other."""

    def __init__(
        self, rows: pa.Table, rules: Rules, say: Say, *, with_hashes: bool = False
    ) -> None:
        self._records = list(records_in(rows, with_hashes=with_hashes))
        self._rules = rules
        self._say = say

    def run(self, tasks: Sequence[Task]) -> list[Outcome]:
        """Return the outcome of each task."""
        self._say(f"simulate: {len(tasks)} run(s) of {sum(len(r.kind) for r in self._records):,}"
                  " attempts")  # fmt: skip
        each = [outcomes(record, self._rules, tasks) for record in self._records]
        return [Outcome.joined(parts) for parts in zip(*each, strict=True)]
