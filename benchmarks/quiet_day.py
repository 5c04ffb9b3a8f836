"""Alerts of a quiet day: the workloads of `benchmarks.foresight`, with enough workers (P12).

`python -m benchmarks.quiet_day` runs a day of each in virtual time. The simulator says when each
attempt starts; every fifteen seconds a store holds the jobs that wait at that moment and what the
workers have measured, and the maintenance leader counts and judges. It prints the alerts that were
raised. With `--broken` one shard stands still for the last five minutes, which has to be noticed.
"""

import argparse
import sys
from array import array
from collections.abc import Iterator, Sequence

from benchmarks.foresight_workloads import WORKLOADS, Call
from dueline.coordination import notes
from dueline.coordination.run_times import RunTimes
from dueline.coordination.worker_registry import Presence, announce
from dueline.core.attempt import Done, Ended, Failed
from dueline.core.clock import SECOND_US
from dueline.core.ids import Ids
from dueline.core.job import Job, JobId
from dueline.core.lane import Lane, bucket_of
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Drop
from dueline.foresight import alert_monitor, rates
from dueline.foresight.alert_settings import AlertSettings, write_settings
from dueline.foresight.record import Kind, Record
from dueline.foresight.scenario import Overheads, Rules, Scenario, SimulatedWorker
from dueline.foresight.simulation import simulate
from dueline.jobs.history_recorder import open_engine
from dueline.jobs.queue import Queues
from dueline.limits.rate import Rate
from dueline.stores.memory.store import MemoryStore

BEGIN_US = 1_767_225_600 * SECOND_US
EVERY_US = 15 * SECOND_US
RETRY_US = (300_000, 800_000)
EARLY_US = 2 * SECOND_US
WORKERS, SLOTS, SHARDS = 2, 4, 4
TARGETS = {"steady": "p99<2s", "bursts": "p95<5s", "limits": "p95<10s"}
"""What a day is judged by: what the workers can meet."""

LIMITS = {"limits.pack": ("warehouse",), "limits.call": ("api",)}
RULES = Rules({"warehouse": 3}, {"api": Rate(12, SECOND_US)}, {"a": 2})
OUTCOME = Failed("ConnectionError", "as recorded", "", retry=True)


class VirtualClock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now_us = BEGIN_US

    def wall_us(self) -> int:
        """Return the time."""
        return self.now_us

    def monotonic_us(self) -> int:
        """Return the time."""
        return self.now_us

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now_us += round(seconds * SECOND_US)


def record_of(queue: str, calls: Sequence[Call]) -> Record:
    """Return calls as a history in which each attempt started at once."""
    kinds: dict[Kind, int] = {}
    jobs: list[tuple[int, list[tuple[int, ...]]]] = []
    for number, call in enumerate(calls):
        kind = Kind(queue, call.task, call.tenant, 0, LIMITS.get(call.task, ()), number % SHARDS)
        place = kinds.setdefault(kind, len(kinds))
        ready_us = BEGIN_US + round(call.due * SECOND_US)
        is_early = int(call.due - call.at > 1)
        run_us = round(call.ms * 1000)
        rows: list[tuple[int, ...]] = []
        jobs.append((ready_us, rows))
        for nth in range(1, call.failures + 2):
            rows.append((place, nth, ready_us, is_early, ready_us, ready_us, ready_us + run_us, 0))
            ready_us += run_us + RETRY_US[min(nth, 2) - 1]
            is_early = 0
    jobs.sort(key=lambda one: one[0])
    columns = zip(*(row for _, rows in jobs for row in rows), strict=True)
    numbers, nths, ready, early, claimed, started, ended, worker = (
        array("q", column) for column in columns
    )
    return Record(list(kinds), numbers, nths, ready, early, claimed, started, ended, worker, ["w"])


class Day:
    """A store of a queue, moved on from look to look."""

    def __init__(self, queue: str) -> None:
        self.clock = VirtualClock()
        self.store = MemoryStore(self.clock)
        self.ids = Ids()
        engine = open_engine(self.store, clock=self.clock, ids=self.ids, defaults=QueueSettings())
        engine.catalog.configure(queue, shards=SHARDS)
        self.queues = Queues(engine)
        write_settings(self.store, AlertSettings(((queue, TARGETS[queue]),)), self.ids)
        self.times = RunTimes("w", slots=WORKERS * SLOTS, now_us=BEGIN_US)
        self.tasks = (rates.task(), alert_monitor.task_of(self.queues))
        self.queue = queue

    def judge(self, ended: Sequence[Ended], waiting: Sequence[Job], running: int) -> list[str]:
        """Take what has happened until now; return what the leader warns of."""
        now_us = self.clock.now_us
        self.times.ended(ended, is_full=False, now_us=now_us)
        self.times.write(self.queues.engine)
        presence = Presence("w", (self.queue,), tuple({one.job.task for one in ended}),
                            WORKERS * SLOTS, running, BEGIN_US, now_us, 0)  # fmt: skip
        announce(self.store, presence, version=self.ids.token(), beat_every_us=10 * SECOND_US)
        self.store.add(waiting)
        found: list[str] = []
        for task in self.tasks:
            result = task.step(self.queues.engine, None)
            found += result.warnings
            if result.puts:
                self.store.commit(notes.PARTITION, result.puts)
        self.store.settle([Drop(one) for one in waiting])
        return found


def attempts(record: Record, queue: str) -> Iterator[tuple[Job, int, int, bool]]:
    """Yield the attempts by their start: the job, its start and end, and whether it failed."""
    workers = [SimulatedWorker(SLOTS, 0, 1 << 62)] * WORKERS
    times = simulate(record, Scenario(RULES, workers, Overheads()))
    width_us = QueueSettings().width_us
    for place in sorted(range(len(record.nth)), key=times.started_us.__getitem__):
        started_us, ready_us = times.started_us[place], times.ready_us[place]
        run_us = record.ended_us[place] - record.started_us[place]
        kind, nth = record.kinds[record.kind[place]], record.nth[place]
        is_failed = place + 1 < len(record.nth) and record.nth[place + 1] > nth
        enqueued_us = ready_us - EARLY_US * record.is_early[place]
        lane = Lane(queue, kind.shard, bucket_of(ready_us, width_us), 0, kind.tenant)
        job = Job(lane, ready_us, JobId(place.to_bytes(16)), 0, ready_us, enqueued_us, kind.task,
                  0, b"", b"", ready_us, fence=nth)  # fmt: skip
        yield job, started_us, started_us + run_us, is_failed


def raised(queue: str, hours: float, *, broken: bool) -> tuple[int, list[str]]:
    """Run a day; return how many attempts it had, and the alerts."""
    seconds = hours * 3600
    day, found = Day(queue), list[str]()
    coming = attempts(record_of(queue, WORKLOADS[queue](seconds).calls), queue)
    ahead: list[tuple[Job, int, int, bool]] = []  # read and not ended
    stuck: list[Job] = []
    total = 0
    stop_us = BEGIN_US + round((seconds - 300) * SECOND_US) if broken else 1 << 62
    for turn in range(1, int(seconds * SECOND_US) // EVERY_US + 1):
        day.clock.now_us = now_us = BEGIN_US + turn * EVERY_US
        while not ahead or ahead[-1][1] <= now_us + 60 * SECOND_US:
            one = next(coming, None)
            if one is None:
                break
            ahead.append(one)
        ended, waiting, later, running = list[Ended](), list[Job](), [], 0
        for one in ahead:
            job, started_us, ended_us, is_failed = one
            if started_us >= stop_us and job.lane.shard == 1:
                stuck.append(job._replace(fence=0))
            elif ended_us <= now_us:
                outcome = OUTCOME if is_failed else Done(b"")
                ended.append(Ended(job, outcome, started_us, ended_us))
            else:
                later.append(one)
                running += started_us <= now_us
                if job.enqueued_us <= now_us < started_us:
                    waiting.append(job._replace(fence=0))
        ahead, total = later, total + len(ended)
        present = [*waiting, *(one for one in stuck if one.pos_us <= now_us)]
        found += day.judge(ended, present, running)
    return total, found


def main() -> None:
    """Print the alerts of a day."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--only", action="append", choices=WORKLOADS)
    parser.add_argument("--broken", action="store_true", help="let one shard stand still")
    asked = parser.parse_args()
    is_good = True
    for queue in asked.only or WORKLOADS:
        total, found = raised(queue, asked.hours, broken=asked.broken)
        print(f"{queue}, {TARGETS[queue]}: {total:,} attempts in {asked.hours:g} h, "
              f"{len(found)} alerts", *found, sep="\n  ", flush=True)  # fmt: skip
        is_good &= bool(found) is asked.broken
    sys.exit(not is_good)


if __name__ == "__main__":
    main()
