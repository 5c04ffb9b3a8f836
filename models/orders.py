"""Jobs of one order key (J6 to J10).

Callers store jobs: each reads the head of the key, inserts the row, which is due if the key has no
entries, and appends an entry on the version that it read. Workers claim what is due. One that
claims a job which was not released reads the entries, then the rows of these: it runs the job if
its entry is the first one that has not ended, lists it if it has no entry, and postpones it
otherwise. The process that ends a job releases the next one. Before one starts or is released, the
one after it is hurried: it checks soon, where others check after as long as they have waited. An
operator cancels a job that waits,
or retries a dead one; a read may miss the row of that while it moves. An append may have no
response: then it arrives later, or never.

Guarantees: one job of the key runs at a time; a job starts after those have ended whose calls were
acknowledged before it was stored; none waits for ever, and none for its own check if no process
stopped, unless the last job before it ended while it was stored. Whichever process stops, the first
one of a key checks soon.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

Entry = tuple[int, int]
"""A job, and how often it had been retried after it was skipped."""


class Row(NamedTuple):
    """A job: "none", "parked", "late", "due", "held", "runs", "dead", "moving" or "gone".

    A parked one is late when its own time has come.

    turn: how often it was retried after it was skipped. is_soon: if it is parked, it checks soon.
    """

    at: str = "none"
    version: int = 0
    is_released: bool = False
    turn: int = 0
    is_soon: bool = True

    def waits(self) -> bool:
        """Return whether it waits for its turn."""
        return self.at in ("parked", "late")


class Caller(NamedTuple):
    """A caller: its next step, the jobs that it has yet to store, and what it read.

    version: of the head. is_busy: the key had entries.
    """

    at: str
    jobs: tuple[int, ...]
    version: int = 0
    is_busy: bool = False


class Process(NamedTuple):
    """A worker or operator: its next step, its job with the row's version, and what it read.

    goal: why it reads the entries: "check" a claimed job, "slow" down one that was postponed, check
    "again", or "advance" the key. following: the job that it hurries, with the row's version.
    """

    at: str = "idle"
    job: int = -1
    row: int = 0
    goal: str = ""
    version: int = 0
    entries: tuple[Entry, ...] = ()
    following: tuple[int, int] = (-1, 0)


class State(NamedTuple):
    """Rows, the entries of the key, and processes.

    version: of the head. answered: jobs whose calls were acknowledged. before: pairs of jobs, of
    which the first was acknowledged before the second was stored. sent: appends without a response.
    was_racing: a job was listed that is postponed, after all before it had ended.
    """

    rows: tuple[Row, ...]
    callers: tuple[Caller, ...]
    workers: tuple[Process, ...]
    entries: tuple[Entry, ...] = ()
    version: int = 0
    answered: frozenset[int] = frozenset()
    before: frozenset[tuple[int, int]] = frozenset()
    sent: frozenset[tuple[Entry, int]] = frozenset()
    claims: int = 0
    crashes: int = 0
    deaths: int = 0
    cancels: int = 0
    unknowns: int = 0
    was_racing: bool = False
    fault: str = ""


@dataclass(frozen=True)
class Orders:
    """Bounds and rules; a mutant leaves out one of these.

    calls: the jobs that each caller stores, one after the other. are_stored: it has, of one caller.
    """

    calls: tuple[tuple[int, ...], ...] = ((0, 1),)
    claims: int = 4
    crashes: int = 1
    deaths: int = 0
    cancels: int = 0
    unknowns: int = 0
    are_stored: bool = False
    skips: bool = False
    row_comes_first: bool = True  # rule J6
    append_is_conditional: bool = True  # rule J6
    only_the_first_runs: bool = True  # rule J7
    unlisted_waits: bool = True  # rule J7
    looks_twice: bool = True  # rule J8
    a_death_ends: bool = False  # rule J8: where a dead job blocks its key
    skipped_takes_a_new_turn: bool = True  # rule J9
    release_is_conditional: bool = True  # rule J10
    has_time: bool = True  # rule J10
    looks_again: bool = True  # rule J10
    hurries_at_start: bool = True  # rule J10
    hurries_first: bool = True  # rule J10
    a_retry_checks: bool = True  # rule J10
    counts_jobs: bool = True  # rule J10
    slows_down_later: bool = True  # rule J10
    release_is_repeated: bool = True  # rule J10

    def start(self) -> State:
        """Return the state before the first call."""
        count = sum(map(len, self.calls))
        callers = tuple(Caller("read", jobs) for jobs in self.calls)
        first = State((Row(),) * count, callers, (Process(),) * 2, claims=self.claims,
                      crashes=self.crashes, deaths=self.deaths, cancels=self.cancels,
                      unknowns=self.unknowns)  # fmt: skip
        if not self.are_stored:
            return first
        others = (Row("parked", is_soon=job == 1) for job in range(1, count))
        before = frozenset((other, job) for job in range(count) for other in range(job))
        return first._replace(
            rows=(Row("due", is_released=True), *others),
            callers=(Caller("done", ()),),
            entries=tuple((job, 0) for job in range(count)),
            before=before,
        )

    def fault(self, state: State) -> str:
        """Find jobs that ran at once or too early, or one that waits for ever."""
        if state.fault:
            return state.fault
        steps = [caller.at for caller in state.callers] + [worker.at for worker in state.workers]
        is_quiet = not state.sent and set(steps) <= {"idle", "crashed", "done"}
        if not is_quiet or any(
            row.at in ("late", "due", "held", "moving", "dead") for row in state.rows
        ):
            return ""
        waiting = [row for row in state.rows if row.at == "parked"]
        if waiting and not self.has_time:
            return "it waits for ever"
        first = self._living(state, state.entries)[:1]
        if first and (row := state.rows[first[0][0]]).at == "parked" and not row.is_soon:
            return "the first one waits for an hour"
        nothing_stopped = state.crashes == self.crashes and state.unknowns == self.unknowns
        nothing_stopped = nothing_stopped and not state.was_racing
        return "no process released it" if waiting and nothing_stopped else ""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let a write arrive, time pass, or a process continue."""
        for entry, version in state.sent:
            there = state._replace(sent=state.sent - {(entry, version)})
            yield "a late append arrives", self._appended(there, entry, version) or there
            yield "a late append is lost", there
        for job, row in enumerate(state.rows):
            if row.at == "parked" and self.has_time and state.claims:
                yield f"{job} is due", _with(state, job, row._replace(at="late"))
            if row.at == "moving":
                yield f"{job} has moved", _with(state, job, row._replace(at="due"))
            if row.at == "dead":
                yield f"{job} is retried", _with(state, job, self._retried(row))
            holders = [w for w in state.workers if w.job == job and w.at != "crashed"]
            if row.at in ("held", "runs") and not any(w.row == row.version for w in holders):
                yield f"the claim on {job} expires", _with(state, job, row._replace(at="due"))
            if row.at == "parked" and state.cancels:
                yield from self._cancel(state, job)
        for number, caller in enumerate(state.callers):
            if state.crashes and caller.at not in ("done", "crashed"):
                dead = state._replace(crashes=state.crashes - 1)
                yield f"caller {number} dies", _call(dead, number, Caller("crashed", ()))
            yield from self._store(state, number, caller)
        for place, worker in enumerate(state.workers):
            if state.crashes and worker.at not in ("idle", "crashed"):
                dead = state._replace(crashes=state.crashes - 1)
                yield f"worker {place} dies", _work(dead, place, Process("crashed"))
            yield from self._work(state, place, worker)

    def _retried(self, row: Row) -> Row:
        moved = row._replace(at="moving", version=row.version + 1)
        if self.skips and self.skipped_takes_a_new_turn:
            return moved._replace(is_released=False, turn=row.turn + 1)
        return moved._replace(is_released=row.is_released and not self.a_retry_checks)

    def _cancel(self, state: State, job: int) -> Iterator[tuple[str, State]]:
        for place, worker in enumerate(state.workers):
            if worker.at == "idle":
                there = _with(state, job, state.rows[job]._replace(at="gone"))
                after = Process("read", job, goal="advance")
                yield f"{job} is cancelled", _work(there, place, after)._replace(cancels=0)

    # Callers

    def _store(self, state: State, place: int, caller: Caller) -> Iterator[tuple[str, State]]:
        job = caller.jobs[0] if caller.jobs else -1
        match caller.at:
            case "read" | "read again":
                first = "insert" if self.row_comes_first else "append"
                at = first if caller.at == "read" else "append"
                after = caller._replace(at=at, version=state.version, is_busy=bool(state.entries))
                yield f"reads the head for {job}", _call(state, place, after)
            case "insert":
                pairs = state.before | {(other, job) for other in state.answered}
                row = Row("parked" if caller.is_busy else "due")
                there = _with(state, job, row)._replace(before=pairs)
                if self.row_comes_first:
                    yield f"inserts {job}", _call(there, place, caller._replace(at="append"))
                else:
                    yield f"inserts {job}", self._answered(there, place, caller)
            case "append":
                again = _call(state, place, caller._replace(at="read again"))
                listed = self._appended(state, (job, 0), caller.version)
                if listed is None:
                    yield f"is refused an entry for {job}", again
                elif self.row_comes_first:
                    yield f"lists {job}", self._answered(listed, place, caller)
                else:
                    yield f"lists {job}", _call(listed, place, caller._replace(at="insert"))
                if state.unknowns:
                    sent = again._replace(
                        unknowns=state.unknowns - 1,
                        sent=state.sent | {((job, 0), caller.version)},
                    )
                    yield f"lists {job}, without a response", sent

    def _answered(self, state: State, place: int, caller: Caller) -> State:
        rest = caller.jobs[1:]
        after = Caller("read", rest) if rest else Caller("done", ())
        return _call(state, place, after)._replace(answered=state.answered | {caller.jobs[0]})

    def _appended(self, state: State, entry: Entry, version: int) -> State | None:
        if state.version == version:
            is_over = all(self._ended(state, each) for each in state.entries)
            was_racing = state.was_racing or (is_over and state.rows[entry[0]].at == "parked")
            return state._replace(entries=(*state.entries, entry), version=version + 1,
                                  was_racing=was_racing)  # fmt: skip
        if self.append_is_conditional:
            return None
        taken = state.entries[-1:]  # another one took the same number: its entry is replaced
        return state._replace(entries=(*(e for e in state.entries if e not in taken), entry))

    # Workers

    def _work(self, state: State, place: int, me: Process) -> Iterator[tuple[str, State]]:
        row = state.rows[me.job] if me.job >= 0 else Row()
        match me.at:
            case "idle" | "crashed":
                for job, due in enumerate(state.rows):
                    if due.at in ("late", "due") and state.claims:
                        yield f"worker {place} claims {job}", self._claimed(state, place, job)
            case "read":
                after = me._replace(at="look", version=state.version, entries=state.entries)
                yield f"worker {place} reads the entries", _work(state, place, after)
            case "look":
                for missed in ((), *(() if self.looks_twice else (_moving(state),))):
                    yield f"worker {place} reads the rows", self._judged(state, place, me, missed)
            case "join":
                listed = self._appended(state, (me.job, row.turn), me.version)
                after = me._replace(at="read" if listed is None else "park")
                yield f"worker {place} lists {me.job}", _work(listed or state, place, after)
            case _:
                yield from self._write(state, place, me)

    def _write(self, state: State, place: int, me: Process) -> Iterator[tuple[str, State]]:
        """Change the row of the job."""
        row = state.rows[me.job]
        match me.at:
            case "park" | "start" | "end" if row.version != me.row:
                yield f"worker {place} has lost {me.job}", _work(state, place, Process())
            case "park" | "slow":
                is_soon = me.at == "park" and self.slows_down_later
                parked = Row("parked", row.version + 1, turn=row.turn, is_soon=is_soon)
                is_mine = row.version == me.row and (me.at == "park" or row.waits())
                there = _with(state, me.job, parked) if is_mine else state
                goal = "slow" if is_soon else "again"
                after = Process(
                    "read" if self.looks_again else "idle", me.job, parked.version, goal
                )
                yield f"worker {place} {me.at}s {me.job}", _work(there, place, after)
            case "hurry":
                yield f"worker {place} hurries {me.following[0]}", self._hurried(state, place, me)
            case "start":
                there = _with(state, me.job, row._replace(at="runs"))
                there = there._replace(fault=self._early(state, me.job))
                yield f"worker {place} starts {me.job}", _work(there, place, me._replace(at="end"))
            case "end":
                for at in ("gone", "dead") if state.deaths else ("gone",):
                    over = row._replace(at=at, version=row.version + 1)
                    left = state.deaths - (at == "dead")
                    there = _with(state, me.job, over)._replace(deaths=left)
                    after = Process("read", me.job, goal="advance")
                    yield f"{me.job} ends {at}", _work(there, place, after)
            case "release":
                is_as_read = row.version == me.row and row.waits()
                if not self.release_is_conditional:
                    is_as_read = row.at in ("parked", "late", "held", "runs")
                released = row._replace(at="due", version=row.version + 1, is_released=True)
                there = _with(state, me.job, released) if is_as_read else state
                hurries = not self.hurries_first and me.following[0] >= 0
                then = me._replace(at="hurry") if hurries else Process()
                if not is_as_read and self.release_is_repeated:
                    then = Process("read", me.job, goal="advance")
                yield f"worker {place} releases {me.job}", _work(there, place, then)

    def _hurried(self, state: State, place: int, me: Process) -> State:
        """Let the following job check soon, if its row has not changed."""
        job, version = me.following
        then = me._replace(at="start" if me.goal == "check" else "release")
        if not self.hurries_first and me.goal != "check":
            then = Process()
        late = state.rows[job]
        if late.version == version:
            state = _with(state, job, late._replace(version=version + 1, is_soon=True))
        return _work(state, place, then)

    def _claimed(self, state: State, place: int, job: int) -> State:
        row = state.rows[job]
        held = row._replace(at="held", version=row.version + 1)
        runs = row.is_released or not self.only_the_first_runs
        after = Process("start" if runs else "read", job, held.version, "check")
        there = _with(state, job, held)._replace(claims=state.claims - 1)
        return _work(there, place, after)

    def _judged(self, state: State, place: int, me: Process, missed: tuple[int, ...]) -> State:
        """Return the state after a process has read the rows of the entries that it read."""
        ended = [each for each in me.entries if each[0] in missed or self._ended(state, each)]
        living = self._once([each for each in me.entries if each not in ended])
        first = living[0] if living else None
        is_blocked = first is not None and state.rows[first[0]].at == "dead"
        late = (-1, 0)
        for job, _ in living[1:2]:
            row = state.rows[job]
            if row.waits() and not row.is_soon and not is_blocked:
                late = (job, row.version)
        there = state._replace(entries=tuple(e for e in state.entries if e not in ended))
        mine = (me.job, state.rows[me.job].turn)
        if me.goal == "slow" and (is_blocked or mine not in living[:2]):
            return _work(there, place, me._replace(at="slow", entries=()))
        if me.goal != "check":
            if first is None or (late[0] < 0 and not state.rows[first[0]].waits()):
                return _work(there, place, Process())
            at = "hurry" if late[0] >= 0 and self.hurries_first else "release"
            after = Process(at, first[0], state.rows[first[0]].version, following=late)
            return _work(there, place, after)
        is_listed = mine in me.entries
        if first == mine or not (is_listed or self.unlisted_waits):
            at = "hurry" if late[0] >= 0 and self.hurries_at_start else "start"
            return _work(there, place, me._replace(at=at, following=late))
        return _work(there, place, me._replace(at="park" if is_listed else "join"))

    def _living(self, state: State, entries: tuple[Entry, ...]) -> list[Entry]:
        return self._once([each for each in entries if not self._ended(state, each)])

    def _once(self, entries: list[Entry]) -> list[Entry]:
        """Return entries without the later ones of the same job."""
        return list(dict.fromkeys(entries)) if self.counts_jobs else entries

    def _ended(self, state: State, entry: Entry) -> bool:
        """Return whether the job of an entry never runs again in this turn."""
        job, turn = entry
        row = state.rows[job]
        is_skipped = row.at == "dead" and (self.skips or self.a_death_ends)
        return row.at in ("none", "gone") or row.turn != turn or is_skipped

    def _early(self, state: State, job: int) -> str:
        """Return why a job must not start now; empty if it may."""
        if any(worker.job == job and worker.at == "end" for worker in state.workers):
            return "a job runs twice at once"
        for other, row in enumerate(state.rows):
            if other != job and row.at == "runs":
                return "two jobs run at once"
            is_over = row.at == "gone" or (self.skips and (row.at == "dead" or row.turn))
            is_passed = (other, job) in state.before and not is_over
            if is_passed and not (self.skips and row.at == "moving"):
                return "a job started before one that was stored before it had ended"
        return ""


def _moving(state: State) -> tuple[int, ...]:
    return tuple(job for job, row in enumerate(state.rows) if row.at == "moving")


def _with(state: State, job: int, row: Row) -> State:
    return state._replace(rows=put(state.rows, job, row))


def _call(state: State, place: int, caller: Caller) -> State:
    return state._replace(callers=put(state.callers, place, caller))


def _work(state: State, place: int, worker: Process) -> State:
    return state._replace(workers=put(state.workers, place, worker))


MODELS = {
    "one caller": Orders(claims=3),
    "two callers": Orders(((0,), (1,)), claims=2, crashes=0),
    "an append without a response": Orders(claims=2, crashes=0, unknowns=1),
    "a dead job blocks its key": Orders(claims=3, deaths=1, crashes=0),
    "a dead job is skipped": Orders(claims=3, deaths=1, crashes=0, skips=True),
    "one in the middle is cancelled": Orders(((0, 1, 2),), claims=2, cancels=1, crashes=0),
    "the last checks late": Orders(((0, 1, 2),), claims=2, crashes=2, are_stored=True),
    "the last checks while others end": Orders(((0, 1, 2),), claims=3, are_stored=True),
    "the last checks behind a dead one": Orders(((0, 1, 2),), claims=3, deaths=1, are_stored=True),
}
MUTANTS = {
    "an entry before its row": Orders(row_comes_first=False),
    "an append on any version": Orders(((0, 2), (1,)), append_is_conditional=False),
    "a claimed job runs unread": Orders(only_the_first_runs=False),
    "one without an entry runs": Orders(unlisted_waits=False),
    "one look for a row": Orders(deaths=1, crashes=0, looks_twice=False),
    "a death ends a turn that blocks": Orders(deaths=1, crashes=0, a_death_ends=True),
    "one that was skipped keeps its entry": Orders(
        deaths=1, crashes=0, skips=True, skipped_takes_a_new_turn=False
    ),
    "a release names no version": Orders(crashes=0, release_is_conditional=False),
    "postponed without a time": Orders(has_time=False),
    "no second check": Orders(looks_again=False, crashes=0),
    "a refused release is not repeated": Orders(
        claims=3, deaths=1, crashes=0, release_is_repeated=False
    ),
    "a job counts twice": Orders(claims=3, counts_jobs=False),
    "a start hurries nobody": Orders(
        ((0, 1, 2),), claims=2, crashes=2, are_stored=True, hurries_at_start=False
    ),
    "a release comes first": Orders(
        ((0, 1, 2),), claims=2, crashes=2, are_stored=True, hurries_first=False
    ),
    "slowed down at once": Orders(((0, 1, 2),), claims=3, are_stored=True, slows_down_later=False),
    "a retry starts unread": Orders(
        ((0, 1, 2),), claims=3, deaths=1, are_stored=True, a_retry_checks=False
    ),
}
