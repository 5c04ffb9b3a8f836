"""Processes of a stream's run: producers, members of groups and monitors."""

import random
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import cast

from dueline.api import deliveries
from dueline.api.maintenance_tasks import tasks_of
from dueline.core.clock import SECOND_US, Clock
from dueline.core.codec import JSON, encode
from dueline.core.errors import AppendUnknown, Conflict, DuelineError, StoreUnavailable
from dueline.core.job import Job, JobId
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Put, Row
from dueline.core.wakeup import LocalWakeups, NoWakeups, Wakeups
from dueline.jobs.history_recorder import open_engine
from dueline.jobs.queue import EnqueueRequest, Queues
from dueline.jobs.transaction import transaction
from dueline.monitor.monitor import Monitor
from dueline.streams.batch import Batch, ConsumerOptions
from dueline.streams.consumer import Consumer
from dueline.streams.consumer_threads import ConsumerThreads
from dueline.streams.event import Event
from dueline.streams.groups import leases_at
from dueline.streams.stream import Stream, channel
from dueline.tasks.handler import Handler
from simulation.clocks import ProcessClock, StoreClock
from simulation.link import Link
from simulation.people import AGAIN_US, BETWEEN_US, DRIFTS_PPM, SeededIds
from simulation.producing import Left, Producers
from simulation.streams.data import Data, product_key, products_at
from simulation.streams.ledger import Ledger, Place, Told
from simulation.streams.scenario import (
    GROUPS,
    KEYS,
    QUEUE,
    QUEUE_SHARDS,
    SKEWS_US,
    STALL_US,
    STREAM,
    TASK_GROUP,
    Scenario,
)
from simulation.world import BEGIN_US, Process, World

TOOK_US = (1_000, 20_000, 200_000, 3_000_000, 12_000_000)
"""Durations of handlers; the last ones are longer than a lease."""

CUT_US = (2_000_000, 500_000, 6_000_000, 10_000)
"""Delays before the stream is resharded."""

STALL_WITHIN_US = (0, 100, 250, 450, 700, 1_500, 5_000)
"""Times after the start of an append at which its producer freezes."""


class Host:
    """The application that streams and transactions need, one for each process."""

    tasks: Mapping[str, Handler] = {}

    def __init__(self, queues: Queues, clock: Clock, scenario: Scenario) -> None:
        """Take the engine and the clock of a process."""
        self.queues = queues
        self.clock = clock
        keep_us = scenario.keep_us or None
        self.stream = Stream(
            lambda: queues.engine, STREAM, owner=self, shards=scenario.shards, keep_us=keep_us
        )


class Town:
    """Starts processes, and holds what they share."""

    def __init__(
        self, world: World, scenario: Scenario, ledger: Ledger, data: Data, *, seed: int
    ) -> None:
        """Take the world, its story, its ledger, and what is stored."""
        self.world = world
        self.scenario = scenario
        self.groups = GROUPS[: scenario.groups]
        self.producers = Producers(world, self._start_producer)
        self._ledger = ledger
        self._data = data
        self._seed = seed
        self._wakeups: Wakeups = LocalWakeups() if scenario.hears else NoWakeups()
        self._started = 0
        self._members: list[tuple[Process, list[ConsumerThreads]]] = []
        self._monitors: list[Process] = []

    def begin(self) -> None:
        """Start all processes."""
        for _ in range(self.scenario.producers):
            self.producers.begin(Left(self.scenario.calls))
        self.look_after_members()
        if self.scenario.cuts:
            process = self._process("operator")
            self.world.spawn(process, process.name, self._cut, process)

    # Processes

    def _process(self, kind: str) -> Process:
        self._started += 1
        process = self.world.process(f"{kind}{self._started}")
        tape = self.world.tape
        if self.scenario.drifts:
            process.drift_ppm = DRIFTS_PPM[tape.pick(len(DRIFTS_PPM))]
        if self.scenario.is_skewed:
            process.off_us = (0, *SKEWS_US)[tape.pick(1 + len(SKEWS_US))]
        return process

    def host(self, process: Process) -> Host:
        """Return the application of a process."""
        clock = ProcessClock(self.world, process)
        queues = Queues(
            open_engine(
                self._data.reach(Link(self.world, process, self.scenario.faults)),
                clock=clock,
                ids=SeededIds(f"{self._seed}/{process.name}"),
                defaults=QueueSettings(),
                wakeups=self._wakeups,
            )
        )
        return Host(queues, clock, self.scenario)

    def wait(self) -> None:
        """Wait until the store is available again."""
        self.world.sleep(AGAIN_US)

    def jobs(self) -> Counter[str]:
        """Count the rows of the jobs that were inserted for events, by id."""
        engine = open_engine(
            self._data.store, clock=StoreClock(self.world), ids=SeededIds("judge"),
            defaults=QueueSettings(), wakeups=NoWakeups(),
        )  # fmt: skip
        return Counter(row.id.hex() for row in engine.jobs_of(QUEUE))

    # Producers

    def _start_producer(self, left: Left[Row]) -> Process:
        process = self._process("producer")
        self.world.spawn(process, process.name, self._produce, process, left)
        return process

    def _produce(self, process: Process, left: Left[Row]) -> None:
        tape = self.world.tape
        stream = self.host(process).stream
        numbers = dict.fromkeys(KEYS, 0)
        while left.calls or left.unsure:
            if left.unsure:
                self._append_again(stream, left)
                continue
            left.calls -= 1
            batch: list[tuple[Told, str | None]] = []
            for _ in range(1 + (tape.pick(6) if tape.pick(3) == 2 else 0)):
                key = KEYS[tape.pick(len(KEYS))]
                numbers[key] += 1
                series = f"{process.name}'s {key}"
                if key is None:  # those keep no order
                    series += f" {numbers[key]}"
                batch.append(((series, numbers[key]), key))
            self._stall(process)
            self._append(stream, batch, left)
            self.world.sleep(BETWEEN_US[tape.pick(len(BETWEEN_US))])
        left.is_over = True

    def _stall(self, process: Process) -> None:
        """Freeze a producer during its next append, by choice."""
        world = self.world
        is_early = world.now_us < BEGIN_US + self.scenario.lasts_us - STALL_US
        if not self.scenario.stalls or not is_early or not world.tape.is_rare(4):
            return

        def stall() -> None:
            if not process.is_dead:
                world.tell(process.name, "an append", "stands still for five minutes")
                process.asleep_us = world.now_us + STALL_US

        world.later(STALL_WITHIN_US[world.tape.pick(len(STALL_WITHIN_US))], stall)

    def _append(
        self, stream: Stream, batch: list[tuple[Told, str | None]], left: Left[Row]
    ) -> None:
        """Repeat an append until it is stored or its outcome is unknown."""
        ledger = self._ledger
        ledger.append(told for told, _ in batch)
        while True:
            try:
                events = stream.append_many(batch)
            except AppendUnknown as error:
                left.unsure = list(error.rows)
                ledger.unsure |= {_told(Event(row)) for row in error.rows}
                return  # the others are stored, at an unknown position
            except StoreUnavailable:
                self.wait()
                continue
            for event in events:
                ledger.acknowledge(_told(event), _place(event))
            return

    def _append_again(self, stream: Stream, left: Left[Row]) -> None:
        """Send events with an unknown outcome again until they are stored."""
        ledger = self._ledger
        ledger.unsure |= {_told(Event(row)) for row in left.unsure}
        try:
            events = stream.append_again(left.unsure)
        except AppendUnknown as error:
            left.unsure = list(error.rows)
        except StoreUnavailable:
            self.wait()
        else:
            left.unsure.clear()
            for event in events:
                ledger.acknowledge(_told(event), _place(event))

    # Whoever cuts the stream anew

    def _cut(self, process: Process) -> None:
        tape = self.world.tape
        stream = self.host(process).stream  # one: a second would draw the same ids again
        for shards in self.scenario.cuts:
            self.world.sleep(CUT_US[tape.pick(len(CUT_US))])
            while not self._is_cut(stream, shards):
                self.wait()

    def _is_cut(self, stream: Stream, shards: int) -> bool:
        try:
            stream.reshard(shards)
        except (StoreUnavailable, Conflict):
            return False
        self._ledger.counts["cut"] += 1
        return True

    # Members

    def look_after_members(self) -> None:
        """Replace members that died, and one live member by choice."""
        tape, world = self.world.tape, self.world
        self._members = [member for member in self._members if not member[0].is_dead]
        missing = self.scenario.members - len(self._members)
        for _ in range(missing):
            if world.is_healed or tape.pick(4) == 0:
                self._start_member()
        if self.scenario.is_redeployed and not world.is_healed and tape.is_rare(8):
            for process, loops in self._members[:1]:
                world.tell(process.name, "deploy", "stops it")
                for loop in loops:
                    loop.stop()
        self._look_after_monitors()
        world.later(SECOND_US, self.look_after_members)

    def _start_member(self) -> None:
        process = self._process("member")
        loops: list[ConsumerThreads] = []
        self._members.append((process, loops))
        self.world.spawn(process, process.name, self._consume, process, loops)

    def _consume(self, process: Process, loops: list[ConsumerThreads]) -> None:
        host = self.host(process)
        while True:
            try:
                settings = host.stream.settings
                break
            except StoreUnavailable:
                self.wait()
        for group in self.groups:
            consumer = Consumer(
                host.queues.engine,
                host.clock,
                process.name,
                stream=STREAM,
                settings=host.stream.look,
                group=group,
                terms=ConsumerOptions(self.scenario.batch, self.scenario.ttl_us),
                owner=host,
            )
            loop = ConsumerThreads(
                consumer,
                Clerk(self, self._ledger, host, process, group),
                ttl_us=self.scenario.ttl_us,
                threads=min(self.scenario.threads, settings.shards),
                wakeups=self._wakeups,
                channel=channel(STREAM),
                tidy=host.stream.expire,
            )
            loop.start()
            loops.append(loop)
        if self.scenario.delivers:
            loops.append(self._deliver(host, process))
        for loop in loops:
            while not loop.join(1.0):
                self.world.sleep(SECOND_US)
        process.is_dead = True

    def _deliver(self, host: Host, process: Process) -> ConsumerThreads:
        """Start what inserts a job for each event."""
        member = Deliverer(
            host.queues.engine,
            host.clock,
            process.name,
            stream=STREAM,
            settings=host.stream.look,
            group=TASK_GROUP,
            terms=ConsumerOptions(self.scenario.batch, self.scenario.ttl_us, is_trusted=True),
            owner=host,
        )
        loop = ConsumerThreads(
            member,
            partial(self._insert, host, member),
            ttl_us=self.scenario.ttl_us,
            threads=1,
            wakeups=self._wakeups,
            channel=channel(STREAM),
            tidy=host.stream.expire,
        )
        loop.start()
        return loop

    def _insert(self, host: Host, member: "Deliverer", batch: Batch) -> None:
        tape, catalog = self.world.tape, host.queues.engine.catalog
        if tape.is_rare(4):
            with suppress(DuelineError):  # new jobs are in other lanes from now on
                catalog.configure(QUEUE, shards=QUEUE_SHARDS[tape.pick(len(QUEUE_SHARDS))])

        def new(_event: Event, job_id: JobId, body: bytes) -> Job:
            call = EnqueueRequest(QUEUE, "ship", JSON, [body], job_ids=[job_id])
            (row,) = host.queues.rows(call)
            return row

        jobs = deliveries.jobs_of(host.queues.engine, batch, TASK_GROUP, new)
        member.commit_with(batch, jobs, host.queues.engine.store)

    # Monitors

    def _look_after_monitors(self) -> None:
        self._monitors = [monitor for monitor in self._monitors if not monitor.is_dead]
        for _ in range(self.scenario.monitors - len(self._monitors)):
            process = self._process("monitor")
            self._monitors.append(process)
            self.world.spawn(process, process.name, self._watch, process)

    def _watch(self, process: Process) -> None:
        host = self.host(process)
        chance = random.Random(f"{self._seed}/{process.name}/chance").random
        monitor = Monitor(
            host.queues.engine,
            process.name,
            clock=host.clock,
            chance=chance,
            load_tasks=lambda: tasks_of(host.queues),
        )
        while True:
            wait_us = 2 * SECOND_US
            with suppress(DuelineError):
                wait_us = monitor.step()
            self.world.sleep(max(wait_us, SECOND_US // 10))


class Deliverer(Consumer):
    """A member whose batches are committed with their jobs, by their handler."""

    def commit(self, batch: Batch) -> None:
        """Do nothing: the handler has committed."""


class Clerk:
    """Handler of a member: records the batch, and creates products."""

    def __init__(
        self, town: Town, ledger: Ledger, host: Host, process: Process, group: str
    ) -> None:
        """Take whose clerk it is."""
        self._town = town
        self._ledger = ledger
        self._host = host
        self._process = process
        self._group = group

    def __call__(self, batch: Batch) -> None:
        """Handle a batch as drawn."""
        world, ledger, group = self._town.world, self._ledger, self._group
        tape = world.tape
        self._look(batch)
        ledger.work(group, batch.shard, batch.epoch)
        told = [_told(event) for event in batch.events]
        mark_us = ledger.mark(STREAM, batch.shard)
        for event in batch.events:
            ledger.begin(group, _told(event), _place(event))
            if event.position.at_us > mark_us:
                ledger.blame(
                    "unclosed", f"{group} receives {_place(event)}; the watermark is {mark_us}"
                )
        if not world.is_healed:
            world.sleep(TOOK_US[tape.pick(len(TOOK_US))] if tape.pick(4) == 3 else TOOK_US[0])
            if tape.is_rare(16):
                raise RuntimeError("fails by choice")
        self._look(batch)
        if self._host.queues.engine.store.transactional:
            self._produce(batch)
        ledger.end(group, told)

    def _look(self, batch: Batch) -> None:
        """Compare the shards that a member believes to hold with the granted ones.

        One whose machine was suspended cannot know; nothing else may deceive it.
        """
        if not batch.is_held or self._process.stood_us:
            return
        grant = self._ledger.grants[leases_at(STREAM, self._group), str(batch.shard)]
        if grant.epoch != batch.epoch:
            self._ledger.blame(
                "owners",
                f"{self._process.name} believes that it holds shard {batch.shard} of {self._group} "
                f"under epoch {batch.epoch}; {grant.holder} has it under epoch {grant.epoch}",
            )

    def _produce(self, batch: Batch) -> None:
        """Store a product of each event in the transaction that moves the offset."""
        ids = self._host.queues.engine.ids
        with transaction(self._host, self._host.queues, self._host.tasks) as tx:
            puts = [
                Put(product_key(_place(event)), ids.token(), encode(_told(event)))
                for event in batch.events
            ]
            tx.queues_of(self._host).engine.store.commit(products_at(self._group), puts)
            batch.commit(tx)


def _told(event: Event) -> Told:
    series, number = event.value
    return cast("str", series), cast("int", number)


def _place(event: Event) -> Place:
    return Place(event.shard, event.position.at_us, event.id)
