"""Starts, kills, pauses and restarts the processes."""

import itertools
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from checker.journal import Event, events_of
from dueline.api.application import Dueline
from dueline.jobs.history import attempts
from simulation.judge import Final, Recorded, Report, judge
from tests.kills.cluster import StruckServer
from tests.kills.disk import FrozenDisk, SmallDisk, has_ended
from tests.kills.ends import finals_of
from tests.kills.jumps import JUMPS_VARIABLE, OFF_S, clock_off, jumps_in
from tests.kills.processes import children_of, processes_with, signal_all, told_in
from tests.kills.producer import GATE
from tests.kills.ring import StruckRing
from tests.kills.strays import strays_in
from tests.kills.used import last_used
from tests.kills.workload import FOLDER_VARIABLE, LEASE_S, QUEUE, STORE_VARIABLE, file_in

ROOT = Path(__file__).parent.parent.parent
BACKLOG_MAX, BACKLOG_SHARE = 400, 8
"""Producers stop when so many of their calls are not finished, as far as the diaries tell, or one
in so many of all: else a quick run would be over before its last kill."""

QUIET_S = 2.0
"""Where nothing happens for so long they go on: a call whose caller was killed may never end."""

PRODUCER_SHARE, CHILD_SHARE = 0.25, 0.5
"""Shares of the kills: producers; of those of the worker with children, a child alone."""

PAUSE_LEASES = 0.5, 2.0
"""How long a paused process stands still, in leases: some lapse, others do not."""

TICK_S = 0.01
LOOK_S = 0.2
LOOK_SHARE = 0.25
"""So much of the time is spent on reading diaries at most: every process leaves one."""

FILLS_MAX = 40
"""How often the disk is filled up at most until a verdict met it: not every call is one."""

STALLED_S = 120.0
"""For so long no process has written anything: waiting longer would only hide what is broken."""

END_S_MAX = 60.0
"""For so long a process that is told to end, or whose parent was killed, may take."""

ENDS = (0, 128 + signal.SIGTERM, -signal.SIGTERM)
"""Exit codes of a worker that was told to end: by itself, by its deadline, before it listens."""

READERS = 8
FOUND = 200
"""Jobs are looked up so many at once."""

PREFETCH = 0
"""No job comes after a less urgent one of its poll."""


class Role(NamedTuple):
    """A producer of some numbers, or a worker with so many children; how far its clock is off."""

    kind: str
    processes: int = 0
    base: int = 0
    last: int = 0
    off_s: int = 0


@dataclass(slots=True)
class Actor:
    """A role, the process that plays it now, None when its part is over, and its address."""

    role: Role
    process: "subprocess.Popen[bytes] | None"
    url: str


class Still(NamedTuple):
    """Processes that stand still, and until when (monotonic)."""

    until_s: float
    pids: Sequence[int]


class Loop:
    """One run: a folder with the queue, and the diaries of all processes."""

    def __init__(
        self,
        folder: Path,
        *,
        jobs: int,
        kills: int,
        seed: int,
        pauses: int = 0,
        server: StruckRing | StruckServer | None = None,
        server_strikes: int = 0,
        disk: SmallDisk | None = None,
        fills: int = 0,
        still_disk: FrozenDisk | None = None,
        freezes: int = 0,
        jumping: bool = False,
        is_astray: bool = False,
    ) -> None:
        """Take an empty folder, how much there is to do, and the seed of the loop's choices.

        Args:
          pauses: how often a process stands still for a while (SIGSTOP).
          server: where the queue is, and what is struck too, so often; None for a file in the
            folder.
          disk: where the queue's file is, and what is full for a while, so often.
          still_disk: where the queue's file is, and what stands still for a while, so often; each
            time a worker is told to end, and must do so.
          jumping: the wall clocks of all processes jump, but for the store's.
          is_astray: the clocks of a producer and of a worker are off, as on other machines.
        """
        self._folder = folder
        self._env = os.environ | ({JUMPS_VARIABLE: "1"} if jumping else {})
        self._jobs = jobs
        self._backlog = min(BACKLOG_MAX, jobs // BACKLOG_SHARE)
        self._server = server
        self._disk = disk
        self._still_disk = still_disk
        own = disk or still_disk
        self._urls = server.urls if server else [own.url if own else file_in(folder)]
        self._choice = random.Random(seed)
        self._strikes = [self._kill_one] * kills + [self._pause_one] * pauses
        self._strikes += [self._strike_server] * server_strikes + [self._fill_disk] * fills
        self._strikes += [self._freeze_disk] * freezes
        self._choice.shuffle(self._strikes)
        self._killed: list[Event] = []
        self._pauses = 0
        self._still: list[Still] = []
        self._fills = self._freezes = 0
        self._full_until_s = 0.0
        self._read: dict[str, int] = {}
        self._seen: Counter[str] = Counter()
        self._over: set[str] = set()
        self._noted_s = time.monotonic()
        self._untold, self._widened_s = 0, 0.0
        self.events: list[Event] = []
        half = jobs // 2
        roles = [
            Role("producer", base=1, last=half),
            Role("producer", base=half + 1, last=jobs, off_s=OFF_S if is_astray else 0),
            Role("worker"),
            Role("worker", processes=2, off_s=-OFF_S if is_astray else 0),
        ]
        self._actors = [
            Actor(role, None, url)
            for role, url in zip(roles, itertools.cycle(self._urls), strict=False)
        ]

    def run(self) -> Report:
        """Run it all, drain the queue, and judge."""
        self._open_gate()
        for actor in self._actors:
            self._start(actor)
        try:
            self._strike_along()
            self._drain()
            self._stop()
        finally:
            for actor in self._actors:
                if actor.process is not None:
                    actor.process.kill()
                    actor.process.wait()
        self._expect_nobody()
        return self._judge()

    # The processes

    def _start(self, actor: Actor) -> None:
        role = actor.role
        arguments = [str(role.processes)]
        if role.kind == "producer":
            first = last_used(self._folder, role.base) + 1
            if first > role.last:
                actor.process = None
                return
            arguments = [str(role.base), str(first), str(role.last)]
        with (self._folder / "stderr").open("ab") as errors:
            actor.process = subprocess.Popen(
                [sys.executable, "-m", f"tests.kills.{role.kind}", *arguments],
                cwd=ROOT,
                env=self._env
                | clock_off(role.off_s)
                | {FOLDER_VARIABLE: str(self._folder), STORE_VARIABLE: actor.url},
                stderr=errors,
            )

    def _watch(self) -> None:
        """Read what was written; let producers go on; see that nobody ended unasked."""
        self._collect()
        self._open_gate()
        self._let_go(time.monotonic())
        assert self._silent_s() < STALLED_S, (
            f"nothing happens: {dict(self._seen)}, {self._errors()}"
        )
        for actor in self._actors:
            if actor.process is not None and (code := actor.process.poll()) is not None:
                assert code == 0, f"a {actor.role.kind} exited with {code}: {self._errors()}"
                assert actor.role.kind == "producer", "a worker ended unasked"
                actor.process = None

    def _silent_s(self) -> float:
        return time.monotonic() - self._noted_s

    def _errors(self) -> str:
        return told_in(self._folder / "stderr")

    def _collect(self) -> None:
        for entry in os.scandir(self._folder):
            read = self._read.get(entry.path, 0)
            if not entry.name.endswith(".events") or entry.stat().st_size == read:
                continue
            with Path(entry.path).open("rb") as file:
                file.seek(read)
                data = file.read()
            self._read[entry.path] = read + data.rfind(b"\n") + 1
            for event in events_of(data):
                self._note(event)

    def _note(self, event: Event) -> None:
        self.events.append(event)
        self._noted_s = time.monotonic()
        self._seen[f"{event.f} {event.type}"] += 1
        if event.f == "start" or (event.f == "settle" and event.type == "ok"):
            self._over.add(event.id)
        if event.f == "enqueue" and event.note and event.type == "no":
            self._over.add(event.id)

    def _open_gate(self) -> None:
        new = self._folder / "gate.new"
        if time.monotonic() - max(self._noted_s, self._widened_s) > QUIET_S:
            self._untold, self._widened_s = self._untold + self._backlog, time.monotonic()
        new.write_text(str((len(self._over) + self._backlog + self._untold) // 2))
        new.replace(self._folder / GATE.name)

    # The kills and pauses

    def _strike_along(self) -> None:
        """Spread them over the work, each at a random moment of its share."""
        for number, strike in enumerate(self._strikes):
            share = (number + self._choice.random()) / len(self._strikes)
            while len(self._over) < share * self._jobs * 0.95:
                began_s = time.monotonic()
                self._watch()
                time.sleep(max(TICK_S, (time.monotonic() - began_s) / LOOK_SHARE))
            time.sleep(self._choice.random() * TICK_S)
            strike()

    def _strike_server(self) -> None:
        assert self._server is not None
        while not self._server.may_strike():
            self._watch()
            time.sleep(LOOK_S)
        self._server.strike()

    def _pause_one(self) -> None:
        """Let a process, its children or all of them stand still."""
        _, process = self._victim()
        children = children_of(process.pid)
        pids = self._choice.choice([[process.pid], [process.pid, *children], children])
        still_s = LEASE_S * self._choice.uniform(*PAUSE_LEASES)
        self._pauses += 1
        self._still.append(Still(time.monotonic() + still_s, pids))
        signal_all(pids, signal.SIGSTOP)

    def _fill_disk(self) -> None:
        """Leave no byte free for a while; the first time again, until a verdict has met it."""
        assert self._disk is not None
        self._fills += 1
        refused = self._refused()
        for _ in range(FILLS_MAX):
            self._full_until_s = time.monotonic() + LEASE_S * self._choice.uniform(*PAUSE_LEASES)
            self._disk.fill()
            while self._fills == 1 and self._refused() == refused:
                if time.monotonic() > self._full_until_s:
                    break
                self._watch()
                time.sleep(TICK_S)
            else:
                return
            self._disk.free()
            settled = self._seen["settle ok"]
            while self._seen["settle ok"] == settled and self._silent_s() < QUIET_S:
                self._watch()
                time.sleep(TICK_S)

    def _freeze_disk(self) -> None:
        """Let the disk stand still for a while; a worker that is told to end does so meanwhile."""
        assert self._still_disk is not None
        self._freezes += 1
        self._let_go(math.inf)  # what stands still could not end
        victim = self._choice.choice(
            [actor for actor in self._actors if actor.role.kind == "worker"]
        )
        assert victim.process is not None
        self._still_disk.freeze()
        try:
            time.sleep(LEASE_S * self._choice.uniform(*PAUSE_LEASES))
            victim.process.terminate()
            give_up_s = time.monotonic() + END_S_MAX
            while victim.process.poll() is None and not has_ended(victim.process.pid):
                assert time.monotonic() < give_up_s, f"a worker does not end: {self._errors()}"
                time.sleep(TICK_S)
        finally:
            self._still_disk.thaw()
        code = victim.process.wait(END_S_MAX)
        assert code in ENDS, f"a worker ended with {code}: {self._errors()}"
        self._noted_s = time.monotonic()
        self._start(victim)

    def _refused(self) -> int:
        return self._seen["settle no"] + self._seen["release no"]

    def _let_go(self, now_s: float) -> None:
        """End what is over: pauses, a full disk, what happened to a server."""
        if self._server is not None:
            self._server.heal(now_s)
        if self._disk is not None and self._full_until_s <= now_s:
            self._disk.free()
        for still in self._still:
            if still.until_s <= now_s:
                signal_all(still.pids, signal.SIGCONT)
        self._still = [still for still in self._still if still.until_s > now_s]

    def _victim(self) -> tuple[Actor, "subprocess.Popen[bytes]"]:
        is_producer = self._choice.random() < PRODUCER_SHARE
        living = [actor for actor in self._actors if actor.process is not None]
        actors = [actor for actor in living if (actor.role.kind == "producer") == is_producer]
        victim = self._choice.choice(actors or living)
        assert victim.process is not None
        return victim, victim.process

    def _kill_one(self) -> None:
        victim, process = self._victim()
        children = children_of(process.pid)
        is_child = children and self._choice.random() < CHILD_SHARE
        if is_child and self._kill(self._choice.choice(children)):
            return
        assert self._kill(process.pid), "it is there until it is waited for"
        process.wait()
        self._start(victim)

    def _kill(self, pid: int) -> bool:
        """Kill a process; tell whether it was there: a child may have been killed before."""
        crash = Event(time.time_ns() // 1000, str(pid), "ok", "crash")
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self._killed.append(crash)
            return True
        return False

    # The end

    def _drain(self) -> None:
        """Let the workers work until no job is left, alive or asleep."""
        self._let_go(math.inf)
        if self._server is not None:
            self._server.wait_ready()
        app = self._app()
        while any(a.role.kind == "producer" and a.process for a in self._actors) or _rows(app):
            self._watch()
            time.sleep(LOOK_S)
        app.close()

    def _stop(self) -> None:
        for actor in self._actors:
            if actor.process is not None:
                actor.process.terminate()
        for actor in self._actors:
            if actor.process is not None:
                code = actor.process.wait(END_S_MAX)
                # One that was started a moment ago does not handle the signal yet.
                assert code in ENDS, f"a {actor.role.kind} ended with {code}: {self._errors()}"
                actor.process = None
        self._collect()

    def _expect_nobody(self) -> None:
        """See that no process of this run is left, children of the killed included."""
        give_up, mine = time.monotonic() + END_S_MAX, f"{FOLDER_VARIABLE}={self._folder}"
        while left := processes_with(mine):
            assert time.monotonic() < give_up, f"processes are left: {left}"
            time.sleep(TICK_S)

    def _app(self) -> Dueline:
        return Dueline(self._urls[0])

    def _judge(self) -> Report:
        app = self._app()
        ids = list(
            {event.id for event in self.events if event.f == "enqueue" and event.type != "no"}
        )
        parts = [ids[place : place + FOUND] for place in range(0, len(ids), FOUND)]
        finals: dict[str, Final] = {}
        with ThreadPoolExecutor(READERS) as readers:
            for ends in readers.map(lambda jobs: finals_of(app, jobs), parts):
                finals |= ends
        shards = app.queues.engine.catalog.settings(QUEUE).shards_read
        recorded = [
            Recorded(attempt.job, attempt.fence, attempt.outcome)
            for attempt in attempts(app.store, QUEUE, shards)
        ]
        assert self._server is not None or app.store.describe()["integrity"] == "ok"
        app.close()
        report = judge(self.events + self._killed, finals, recorded, prefetch=PREFETCH)
        counts = {
            "kills": len(self._killed),
            "pauses": self._pauses,
            "full disks": self._fills,
            "silent disks": self._freezes,
            **(self._server.counts if self._server else {}),
            **(
                {"stray answers": strays_in(self._folder)}
                if isinstance(self._server, StruckRing)
                else {}
            ),
            "clock jumps": jumps_in(self._folder),
        }
        return Report({**counts, **report.counts}, report.faults)


def _rows(app: Dueline) -> int:
    """Count the jobs that have not ended."""
    return sum(
        len(app.store.scan(lane, after=None, until_us=None, limit=10_000).jobs)
        for lane in app.queues.engine.lanes_of(QUEUE)
    )
