"""One run of a queue with order keys, from a seed to a verdict.

Callers, workers and an operator share a few keys under faults.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from dueline.core.call_options import CallOptions, OrderPlace, order_of
from dueline.core.job import Claim, Job, JobId, State
from dueline.jobs.queue import EnqueueRequest, Queues
from dueline.tasks.handler import Context
from simulation.data import Data, kind_of
from simulation.life import Life, lived
from simulation.people import AHEAD_US, BETWEEN_US, Town
from simulation.scenario import PRIORITIES, QUEUE, TENANTS, scenario_of
from simulation.shop import RunLog, Shop, call_of, number_of
from simulation.tape import Tape
from simulation.world import Process, World

KEYS: Final = ("a", "b")
MANY: Final = 1_000_000

ORDERED_VERDICTS: Final = ("out of order", "together")
"""Verdicts on such runs only: a job starts before one of its key has ended whose call returned
before, or while another one of its key runs under a valid claim."""


class _OrderedShop(Shop):
    """Checks, at each start of a handler, the other jobs of its key."""

    def __init__(self, world: World, diary: RunLog, data: Data) -> None:
        """Take the world, its event log, and the data."""
        super().__init__(world, diary)
        self._seen_by = world
        self._data = data
        self._running: dict[Claim, Process] = {}
        self.before: dict[int, Sequence[JobId]] = {}
        """The jobs of its key whose calls had returned, by the number of a call."""
        self.key_of: dict[int, str] = {}
        self.faults: dict[str, list[str]] = defaultdict(list)

    def work(self, context: Context, number: int, took_us: int, fate: str, /) -> int:
        """Check the other jobs of the key, and run the job."""
        claim = Claim(JobId(bytes.fromhex(context.job_id.hex())), context.fence)
        self._look(claim, number)
        self._running[claim] = self._seen_by.here()
        try:
            return super().work(context, number, took_us, fate)
        finally:
            del self._running[claim]

    def _look(self, claim: Claim, number: int) -> None:
        now_us, key = self._seen_by.now_us, self.key_of[number]
        before = set(self.before[number]) - {claim.job_id}
        holders = {held for held, who in self._running.items() if not who.is_dead}
        wanted = {job_id.hex() for job_id in before} | {held.job_id.hex() for held in holders}
        rows = {row.id: row for row in self._data.rows(wanted | {claim.job_id.hex()})}
        mine = rows.get(claim.job_id)
        if mine is None or mine.claim() != claim or mine.at_us <= now_us:
            return  # its claim is over: another one counts
        for row in rows.values():
            if row.id == claim.job_id or row.outcome or self.key_of[number_of(row)] != key:
                continue
            story = f"{claim.job_id.hex()} starts at {now_us}, {row.id.hex()} is {row.state}"
            if row.id in before and not _was_skipped(row):
                self.faults["out of order"].append(story)
            if row.claim() in holders and row.at_us > now_us:
                self.faults["together"].append(story)


def _was_skipped(row: Job) -> bool:
    order = order_of(row)
    return row.state == State.DEAD or order is None or order.turn > 0


def live(
    seed: int, given: Sequence[int] | None = None, *, trace: Callable[[str], object] | None = None
) -> Life:
    """Run one seed; the same seed, or the same tape with it, gives the same run.

    Its verdicts are those of a queue's run, and ORDERED_VERDICTS.
    """
    tape = Tape(seed, given)
    scenario = scenario_of(seed, tape)
    world = World(tape, trace=trace)
    data = Data(world, kind_of(seed, is_stepped=scenario.is_stepped))
    shops: list[_OrderedShop] = []
    numbers = iter(range(1, MANY))
    returned: dict[str, list[JobId]] = defaultdict(list)

    def open_shop(world: World, diary: RunLog) -> Shop:
        shops.append(_OrderedShop(world, diary, data))
        return shops[-1]

    def begin(town: Town) -> None:
        for _ in range(scenario.producers):
            town.start_person("caller", call)
        if scenario.has_operator:
            town.start_operator()
        town.look_after_workers()

    def call(town: Town, queues: Queues) -> None:
        for _ in range(scenario.calls):
            key = KEYS[tape.pick(len(KEYS))]
            batch = [next(numbers) for _ in range(1 + tape.pick(2))]
            for number in batch:
                shops[0].key_of[number] = key
                shops[0].before[number] = tuple(returned[key])
            opts = CallOptions(order=OrderPlace(key, skips=True)).to_bytes()
            ahead_us = AHEAD_US[tape.pick(len(AHEAD_US))]
            due_us = world.now_us + ahead_us if ahead_us else None
            priority = PRIORITIES[tape.pick(len(PRIORITIES))]
            tenant = TENANTS[tape.pick(len(TENANTS))]
            bodies = [call_of(tape, number) for number in batch]
            ids = queues.engine.ids.many(len(bodies), world.now_us)
            request = EnqueueRequest(
                QUEUE, "work", 0, bodies, due_us, priority, tenant, opts, job_ids=ids
            )
            town.put(queues, request)
            returned[key] += [job_id for job_id in ids if job_id not in town.unanswered]
            world.sleep(BETWEEN_US[tape.pick(len(BETWEEN_US))])

    def judge(diary: RunLog, faults: dict[str, list[str]]) -> None:
        del diary
        faults |= shops[0].faults

    return lived(world, scenario, data, begin, seed=seed, judge=judge, open_shop=open_shop)
