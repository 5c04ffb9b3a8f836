"""A steady flow of events or jobs in simulated time, and how long each waits."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from dueline.core.clock import SECOND_US
from dueline.core.errors import DuelineError
from dueline.streams import consumer_threads
from dueline.streams.batch import Batch, ConsumerOptions
from dueline.streams.consumer import Consumer
from dueline.streams.consumer_threads import ConsumerThreads
from dueline.streams.stream import channel
from simulation.streams.data import Data
from simulation.streams.ledger import Ledger
from simulation.streams.scenario import STREAM, Scenario
from simulation.streams.threads import planted
from simulation.streams.town import Host, Town
from simulation.tape import Tape
from simulation.world import BEGIN_US, Process, World
from tests.simulation.outage import Away, Outage

GROUP: Final = "bill"
KEYS: Final = 8
EVERY_US: Final = 100_000
"""Each key has an event so often."""


class Flow:
    """Two producers, some members of a group, and nothing that goes wrong by itself.

    waits_us: of each event, when it was handled and how long after it was to be appended. shards:
    in which shard it was. leaving: the members that are asked to stop.
    """

    def __init__(
        self,
        *,
        is_stepped: bool,
        hears: bool,
        ttl_us: int,
        took_us: int = 40_000,
        shards: int = 1,
        members: int = 3,
    ) -> None:
        """Make a world of their own.

        Args: ttl_us: of leases; a beat comes four times in it. took_us: how long a batch takes.
        """
        self.world = World(Tape(0, []))
        self.waits_us: list[tuple[int, int]] = []
        self.shards: list[int] = []
        self.found: dict[str, list[int]] = {}
        self.sent: dict[str, int] = {}
        self.outage = Outage()
        self.leaving: set[str] = set()
        scenario = Scenario(
            is_stepped=is_stepped, faults=(), shards=shards, ttl_us=ttl_us, batch=50, groups=1,
            producers=0, calls=0, members=0, threads=1, keep_us=0, stalls=False, is_skewed=False,
            monitors=0, is_redeployed=False, hears=hears, drifts=False, lasts_us=0, cuts=(),
        )  # fmt: skip
        ledger = Ledger(lambda: self.world.now_us)
        data = Data(self.world, ledger, is_stepped=is_stepped)
        reach = data.reach
        data.reach = lambda link: reach(Away(self.world, link.process, self.outage))
        self._town = Town(self.world, scenario, ledger, data, seed=1)
        self._members = members
        self._ttl_us = ttl_us
        self._took_us = took_us

    @property
    def now_us(self) -> int:
        """The time since the beginning."""
        return self.world.now_us - BEGIN_US

    def begin(self) -> None:
        """Start everybody."""
        for number in range(self._members):
            self.start(f"member {number}", self._consume)
        for number in range(2):
            self.start(f"producer {number}", self._produce)

    def start(self, name: str, act: Callable[[Process, Host], object]) -> None:
        """Start somebody, in a process of its own."""
        process = self.world.process(name)
        self.world.spawn(process, name, lambda: act(process, self._town.host(process)))

    def cut(self, shards: int) -> None:
        """Have an operator cut the stream anew, now."""
        self.start(f"operator {self.now_us}", lambda _, host: host.stream.reshard(shards))

    def until(self, instant_s: float) -> None:
        """Let time pass up to an instant, counted from the beginning."""
        self.world.run(BEGIN_US + round(instant_s * SECOND_US), lambda: False)
        for _, error in self.world.failures:
            raise error

    def _consume(self, process: Process, host: Host) -> None:
        consumer = Consumer(
            host.queues.engine, host.clock, process.name, stream=STREAM, settings=host.stream.look,
            group=GROUP, terms=ConsumerOptions(50, self._ttl_us), owner=host,
        )  # fmt: skip
        loop = ConsumerThreads(
            consumer, self._handle, ttl_us=self._ttl_us, threads=1,
            wakeups=host.queues.engine.wakeups,
            channel=channel(STREAM), tidy=lambda: None,
        )  # fmt: skip
        loop.start()
        while process.name not in self.leaving:
            self.world.sleep(SECOND_US // 10)
        loop.stop()
        while not loop.join(1.0):
            pass

    def _handle(self, batch: Batch) -> None:
        self.world.sleep(self._took_us)
        for event in batch.events:
            key, number, at_us = event.value
            numbers = self.found.setdefault(key, [])
            if number not in numbers:
                numbers.append(number)
                self.shards.append(batch.shard)
                self.waits_us.append((self.now_us, self.now_us - at_us))

    def _produce(self, process: Process, host: Host) -> None:
        """Append an event of each key in turn, whatever it takes."""
        while True:
            for number in range(KEYS):
                key = f"{process.name}/{number}"
                self.sent[key] = self.sent.get(key, 0) + 1
                value, at_us = self.sent[key], self.now_us
                while True:
                    try:
                        host.stream.append((key, value, at_us), key=key)
                        break
                    except DuelineError:
                        self.world.sleep(SECOND_US // 10)
                self.world.sleep(EVERY_US // KEYS)


@contextmanager
def flowing(flow: Flow) -> Iterator[Flow]:
    """Have consumers find fibers where they look for threads, and wait as long as they do."""
    pauses = consumer_threads.PAUSE_S, consumer_threads.PAUSE_UNHEARD_S
    with planted(flow.world):
        consumer_threads.PAUSE_S, consumer_threads.PAUSE_UNHEARD_S = pauses  # type: ignore[misc]
        try:
            flow.begin()
            yield flow
        finally:
            flow.world.close()
