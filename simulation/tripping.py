"""One run of a queue whose task pauses itself, from a seed to a verdict.

Jobs fail and kill their processes until the faults end; then all of them end.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from dueline.jobs import circuit_records
from dueline.tasks.failure_limits import Failures
from dueline.tasks.handler import Context, Handler
from simulation.data import Data, kind_of
from simulation.life import Life, lived
from simulation.people import Town, Version
from simulation.scenario import QUEUE, scenario_of
from simulation.shop import RETRY, RunLog, Shop, work
from simulation.tape import Tape
from simulation.world import World

TRIPPED_VERDICTS: Final = ("two probes",)
"""Verdicts on such runs only: two jobs probe a circuit within a period."""

TASK: Final = "work"
TASKS: Final[Mapping[str, Handler]] = {
    TASK: Handler(
        work, name=TASK, retry=RETRY, timeout_us=None,
        pause_after=Failures(2, of=6, probe_every=2, crashes=2),
    )
}  # fmt: skip


class _TrippingShop(Shop):
    """Notes, at each start of a handler, whether it probes the circuit."""

    def __init__(self, world: World, diary: RunLog, data: Data) -> None:
        """Take the world, its event log, and the data."""
        super().__init__(world, diary)
        self._data = data
        self._last = circuit_records.Circuit()
        self.probes = 0
        self.faults: dict[str, list[str]] = defaultdict(list)

    def work(self, context: Context, number: int, took_us: int, fate: str, /) -> int:
        """Compare a probe with the one before, and run the job."""
        now, _ = circuit_records.read(self._data.store, QUEUE, TASK)
        if now.is_open and now.probe == f"{context.job_id.hex()}/{context.fence}":
            self.probes += 1
            is_soon = now.probe_us - self._last.probe_us < now.every_us
            if now.opened_us == self._last.opened_us and is_soon:
                self.faults["two probes"].append(f"{self._last}, then {now}")
            self._last = now
        return super().work(context, number, took_us, fate)


def live(
    seed: int, given: Sequence[int] | None = None, *, trace: Callable[[str], object] | None = None
) -> Life:
    """Run one seed; the same seed, or the same tape with it, gives the same run.

    Its verdicts are those of a queue's run, and TRIPPED_VERDICTS.
    """
    tape = Tape(seed, given)
    scenario = scenario_of(seed, tape)
    world = World(tape, trace=trace)
    data = Data(world, kind_of(seed, is_stepped=scenario.is_stepped))
    shops: list[_TrippingShop] = []

    def open_shop(world: World, diary: RunLog) -> Shop:
        shops.append(_TrippingShop(world, diary, data))
        return shops[-1]

    def begin(town: Town) -> None:
        town.versions = (Version(TASKS),)
        for _ in range(scenario.producers):
            town.start_producer()
        if scenario.has_operator:
            town.start_operator()
        town.look_after_workers()

    def judge(diary: RunLog, faults: dict[str, list[str]]) -> None:
        del diary
        faults |= shops[0].faults

    return lived(world, scenario, data, begin, seed=seed, judge=judge, open_shop=open_shop)
