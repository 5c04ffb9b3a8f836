"""One run of a queue with limits, from a seed to a verdict.

Workers share a few permits and rates under faults. In some runs, jobs need resources, too.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from dueline.core.call_options import CallOptions
from dueline.core.job import Claim, JobId
from dueline.core.lane import limits_of
from dueline.core.limit_names import semaphore_of
from dueline.core.worker_needs import read_needs
from dueline.jobs.queue import EnqueueRequest, Queues
from dueline.limits import rate, semaphore
from dueline.tasks.handler import Context
from dueline.tasks.raised import Throttled
from simulation.data import Data, kind_of
from simulation.life import Life, lived
from simulation.paced import RATES, Watch, closings, over_rate, too_soon
from simulation.people import AHEAD_US, BETWEEN_US, SeededIds, Town
from simulation.scenario import PRIORITIES, QUEUE, TENANTS, scenario_of
from simulation.shop import SPARED_FENCE, RunLog, Shop, call_of
from simulation.tape import Tape
from simulation.world import Process, World

CAPACITIES: Final[Mapping[str, int]] = {"few": 2, "each": 1}
LIMITS: Final = (("few",), ("each:a",), ("each:b",), ("few", "each:a"), ("each:a", "each:b"), ())
PACED: Final = (
    ("steady",),
    ("per:a",),
    ("per:b",),
    ("bucket",),
    ("few", "steady"),
    ("steady", "per:a"),
)
MANY: Final = 1_000_000

CLOSING_ONE_IN: Final = 4
CLOSED_S: Final = 0.5

GPUS: Final = 3
HAS: Final[Mapping[str, int | str]] = {"gpu": GPUS, "region": "eu"}
NEEDS: Final[Sequence[Mapping[str, int | str]]] = (
    {}, {"gpu": 1}, {"gpu": 2, "region": "eu"}, {"gpu": 3}, {"region": "eu"},
)  # fmt: skip
"""What the workers of some runs have, and what their jobs need, in turn."""

LIMITED_VERDICTS: Final = ("over capacity", "over rate", "over resources", "too soon")
"""Verdicts on such runs only: a limit is exceeded by jobs that run at once, or by starts in a
period; handlers of a worker use more than it has; a job starts although a handler has closed its
limit."""


class _LimitedShop(Shop):
    """Records, at each start of a handler, which others run under valid claims."""

    def __init__(
        self, world: World, diary: RunLog, data: Data, *, closes: bool, has_needs: bool
    ) -> None:
        """Take the world, its event log, the data, and what jobs do.

        closes: some close their limits. has_needs: they have NEEDS, by their numbers.
        """
        super().__init__(world, diary)
        self._seen_by = world
        self._data = data
        self._running: dict[Claim, Process] = {}
        self.faults: list[str] = []
        self.said: dict[Claim, Sequence[str]] = {}
        self._closes = closes
        self._has_needs = has_needs
        self._gpus: dict[Claim, int] = {}
        self.overfull: list[str] = []

    def _limits_of(self, claim: Claim) -> Sequence[str]:
        """Return the limits of a running job."""
        rows = self._data.rows({claim.job_id.hex()})
        return next((limits_of(row.lane) for row in rows if row.claim() == claim), ())

    def work(self, context: Context, number: int, took_us: int, fate: str, /) -> int:
        """Check the running jobs, and run the job; some close their limits for a while first."""
        claim = Claim(JobId(bytes.fromhex(context.job_id.hex())), context.fence)
        self._running[claim] = here = self._seen_by.here()
        if self._has_needs:
            self._gpus[claim] = int(needs_of(number).get("gpu", 0))
            mine = [other for other, who in self._running.items() if who is here]
            if sum(self._gpus[other] for other in mine) > GPUS:
                self.overfull.append(f"{here.name} at {self._seen_by.now_us}: {mine}")
        try:
            self._look()
            result = super().work(context, number, took_us, fate)
            is_closing = self._closes and number % CLOSING_ONE_IN == 0
            if is_closing and context.fence < SPARED_FENCE:
                self.said[claim] = self._limits_of(claim)
                raise Throttled(CLOSED_S)
            return result
        finally:
            del self._running[claim]

    def _look(self) -> None:
        """Count for each limit the jobs that run under valid claims."""
        now_us = self._seen_by.now_us
        running = {claim.job_id.hex() for claim, who in self._running.items() if not who.is_dead}
        count: dict[str, list[str]] = {}
        for row in self._data.rows(running):
            is_held = row.at_us > now_us and not row.outcome
            if row.claim() in self._running and row.id.hex() in running and is_held:
                for name in limits_of(row.lane):
                    count.setdefault(name, []).append(f"{row.id.hex()} by {row.worker}")
        for name, jobs in count.items():
            if len(jobs) > CAPACITIES.get(semaphore_of(name), MANY):  # a rate lets any number run
                self.faults.append(f"{name} at {now_us}: {', '.join(sorted(jobs))}")


def needs_of(number: int) -> Mapping[str, int | str]:
    """Return what a job needs in runs with needs."""
    return NEEDS[number % len(NEEDS)]


def live(
    seed: int, given: Sequence[int] | None = None, *, trace: Callable[[str], object] | None = None
) -> Life:
    """Run one seed; the same seed, or the same tape with it, gives the same run.

    Its verdicts are those of a queue's run, and LIMITED_VERDICTS.
    """
    tape = Tape(seed, given)
    scenario = scenario_of(seed, tape)
    world = World(tape, trace=trace)
    data = Data(world, kind_of(seed, is_stepped=scenario.is_stepped))
    shops: list[_LimitedShop] = []
    watch = Watch(world, data.reach)
    data.reach = watch.reach
    limits_known = PACED if seed % 3 == 1 else LIMITS
    has_needs = seed % 3 == 2
    numbers = iter(range(1, MANY))

    def open_shop(world: World, diary: RunLog) -> Shop:
        closes = limits_known is PACED
        shops.append(_LimitedShop(world, diary, data, closes=closes, has_needs=has_needs))
        return shops[-1]

    def begin(town: Town) -> None:
        if has_needs:
            town.versions = [version._replace(has=HAS) for version in town.versions]
        for name, capacity in CAPACITIES.items():
            semaphore.define(data.store, name, capacity, ids=SeededIds(f"{seed}/{name}"))
        for name, limit in RATES.items():
            rate.define(data.store, name, limit, ids=SeededIds(f"{seed}/{name}"))
        for _ in range(scenario.producers):
            town.start_person("caller", call)
        if scenario.has_operator:
            town.start_operator()
        town.look_after_workers()

    def call(town: Town, queues: Queues) -> None:
        for _ in range(scenario.calls):
            bodies = [call_of(tape, next(numbers)) for _ in range(1 + tape.pick(2))]
            ahead_us = AHEAD_US[tape.pick(len(AHEAD_US))]
            due_us = world.now_us + ahead_us if ahead_us else None
            priority = PRIORITIES[tape.pick(len(PRIORITIES))]
            tenant = TENANTS[tape.pick(len(TENANTS))]
            limits = [limits_known[tape.pick(len(limits_known))] for _ in bodies]
            calls = EnqueueRequest(
                QUEUE, "work", 0, bodies, due_us, priority, tenant, limits=limits
            )
            if not has_needs:
                town.put(queues, calls)
            for body, names in zip(bodies, limits, strict=True) if has_needs else ():
                needs = needs_of(json.loads(body)[0])
                opts = CallOptions(needs=read_needs(needs)).to_bytes() if needs else b""
                town.put(queues, calls._replace(bodies=[body], limits=[names], opts=opts))
            world.sleep(BETWEEN_US[tape.pick(len(BETWEEN_US))])

    def judge(diary: RunLog, faults: dict[str, list[str]]) -> None:
        verdicts = {
            "over capacity": shops[0].faults,
            "over rate": over_rate(watch.taken, watch.blurred),
            "over resources": shops[0].overfull,
            "too soon": too_soon(watch.taken, closings(diary.events, shops[0].said)),
        }
        faults |= {verdict: stories for verdict, stories in verdicts.items() if stories}

    return lived(world, scenario, data, begin, seed=seed, judge=judge, open_shop=open_shop)
