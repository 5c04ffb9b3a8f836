"""One record claims a stretch of new rows.

Two workers read the record of a lane and then its rows, and claim all new rows at once by naming
them in a record of the lane. Such a claim is written out into its rows before anything but the end
of a job happens to them. An operator cancels a row with what it read, a row is inserted into the
stretch, and a process of the previous version claims rows one by one. One write may have no
response: then it arrives at any later time, or never.

A second, abstract state says what claims by row would leave (`models/claims.py`). Guarantees: a
reader who looks at the rows through the record always sees exactly that. So no job is claimed
twice, fences grow, stale outcomes change nothing, and no row is hidden. No handler runs without a
claim, and no claim or outcome that holds is reported as rejected.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

NOW_MAX = 1
LEASE = 1
NEW = 1
CANCEL = 90
ANEW = 5
"""Offset of the token of a repeat, in the mutant where it differs."""
LATE, EARLY = 0, 1
"""The rows by position: the first one is inserted late, into the stretch of the other."""


class Row(NamedTuple):
    """The stored row of a job."""

    fence: int
    at: int
    token: int
    cancelled: bool = False


class Stretch(NamedTuple):
    """A claim of several rows. names: rows that it claims. first: the start of its range."""

    token: int
    names: frozenset[int]
    until: int
    first: int = 0


Rows = tuple[Row | None, ...]
Record = frozenset[Stretch]


class Write(NamedTuple):
    """A conditional write to one lane.

    version: that of the record that was read. rows: rows that it concerns. seen: the row that was
    read. by_row: the token is the row's own.
    """

    what: str
    token: int
    rows: frozenset[int] = frozenset()
    version: int = 0
    seen: Row | None = None
    at: int = 0
    by_row: bool = False


class Worker(NamedTuple):
    """A worker: its next step, what it read, its claim, and the rows that it has not ended."""

    at: str = "idle"
    claims: int = 0
    token: int = 0
    version: int = 0
    record: Record | None = None
    rows: Rows | None = None
    sent: Write | None = None
    left: frozenset[int] = frozenset()
    is_out: bool = False


class State(NamedTuple):
    """The lane, what claims by row would leave, the processes, and pending writes."""

    now: int
    version: int
    record: Record
    rows: Rows
    abstract: Rows
    workers: tuple[Worker, ...]
    operator: tuple[int, int, Row] | None  # version, row
    former: Write | None
    sent: Write | None
    granted: frozenset[int]
    has_arrived: bool
    unknowns: int
    cancels: int
    formers: int
    wrong: str = ""


@dataclass(frozen=True)
class Stretches:
    """Rules, of which a mutant leaves out one; and how stretches are stored."""

    in_transactions: bool = False
    beside_the_former: bool = False
    with_an_operator: bool = False
    grants_by_version: bool = True  # rule G2
    skips_claimed_rows: bool = True  # rule G2
    takes_new_rows_only: bool = True  # rule G2
    reads_the_record_first: bool = True  # rule G2
    takes_rows_of_its_kind: bool = True  # rules G2, V2
    ends_by_token: bool = True  # rule G3
    ends_by_row_afterwards: bool = True  # rules G3, U5
    writes_out_before_moves: bool = True  # rule G4
    counts_the_claim: bool = True  # rule G4
    writes_out_what_is_there: bool = True  # rule G4
    never_leaves_rows: bool = True  # rule G5
    cancels_by_version: bool = True  # rule G6
    changes_raise_the_version: bool = True  # rule G6
    stops_at_other_rows: bool = True  # rule G7
    writes_out_at_inserts: bool = True  # rule G7
    writes_out_at_moves: bool = True  # rule G7
    reads_back: bool = True  # rule U2
    knows_its_own: bool = True  # rule U5
    repeats_the_same: bool = True  # rule U5

    def start(self) -> State:
        """Return a lane with one due row."""
        is_late = self.in_transactions
        rows: Rows = (None if is_late else Row(0, 0, NEW), Row(0, 0, NEW))
        is_large = self.with_an_operator or self.beside_the_former
        claims = 1 if is_large and not self.in_transactions else 2
        workers = (Worker(claims=claims), Worker(claims=1))
        return State(
            0, 0, frozenset(), rows, rows, workers, None, None, None, frozenset(),
            has_arrived=not is_late,
            unknowns=int(not (self.in_transactions or self.with_an_operator)),
            cancels=int(self.with_an_operator), formers=int(self.beside_the_former),
        )  # fmt: skip

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let time pass, a write or a row arrive, or a process continue."""
        if state.now < NOW_MAX:
            yield "time passes", state._replace(now=state.now + 1)
        if state.sent:
            held, there = self._apply(state._replace(sent=None), state.sent)
            if held:
                yield f"a late {state.sent.what} arrives", there
        if not state.has_arrived:
            yield "a row is inserted before the others", self._insert(state)
        for number, worker in enumerate(state.workers):
            for words, there, after in self._work(state, worker, number):
                workers = put(there.workers, number, after)
                yield f"worker {number + 1} {words}", there._replace(workers=workers)
        yield from self._cancel(state)
        yield from self._claim_as_before(state)

    def fault(self, state: State) -> str:
        """Compare what a reader sees with what claims by row would leave."""
        if state.wrong:
            return state.wrong
        for number, row in enumerate(state.rows):
            seen = self._view(state.record, row, number)
            real = state.abstract[number]
            if seen != real:
                is_free = real and real.token == NEW
                return (
                    "a row that was not claimed is taken for claimed"
                    if is_free
                    else "readers do not see what claims by row would leave"
                )
            if row and row == seen and self._is_hidden(state, row, number):
                return "a due row is hidden by a stretch"
        return ""

    # The processes

    def _insert(self, state: State) -> State:
        """Insert a row; in a transaction, stretches that it falls into are written out first."""
        row = Row(0, 0, NEW)
        if self.writes_out_at_inserts:
            state = self._make_way(state, row, LATE)
        return state._replace(
            rows=put(state.rows, LATE, row),
            abstract=put(state.abstract, LATE, row),
            has_arrived=True,
        )

    def _work(
        self, state: State, worker: Worker, number: int
    ) -> Iterator[tuple[str, State, Worker]]:
        idle = Worker(claims=worker.claims)
        match worker.at:
            case "idle" if worker.claims and self.in_transactions:
                read = worker._replace(version=state.version, record=state.record, rows=state.rows)
                yield from self._choose(state, read, number)
            case "idle" if worker.claims:
                yield from self._read(state, worker, is_record=self.reads_the_record_first)
            case "read":
                yield from self._read(state, worker, is_record=worker.record is None)
            case "choose":
                yield from self._choose(state, worker, number)
            case "send":
                assert worker.sent
                yield from self._send(state, worker, worker.sent, idle)
            case "ask":
                yield from self._ask(state, worker, idle)
            case "hold":
                yield from self._hold(state, worker, idle)

    def _read(
        self, state: State, worker: Worker, *, is_record: bool
    ) -> Iterator[tuple[str, State, Worker]]:
        after = "choose" if worker.at == "read" else "read"
        if is_record:
            read = worker._replace(at=after, record=state.record, version=state.version)
            yield "reads the record", state, read
        else:
            yield "reads the rows", state, worker._replace(at=after, rows=state.rows)

    def _choose(
        self, state: State, worker: Worker, number: int
    ) -> Iterator[tuple[str, State, Worker]]:
        """Claim new rows as a stretch, claim another by row, or write out an expired stretch."""
        assert worker.record is not None
        assert worker.rows is not None
        idle = Worker(claims=worker.claims)
        token = 10 * (number + 1) + worker.claims
        for stretch in worker.record:
            if stretch.until <= state.now:
                out = self._written_out(worker.rows, stretch)
                yield "writes out an expired stretch", self._apply(state, out)[1], idle
        free = {
            number: row
            for number, row in enumerate(worker.rows)
            if row and row.at <= state.now
            and not (self.skips_claimed_rows and _is_named(worker.record, row, number))
        }  # fmt: skip
        new = frozenset(
            number
            for number, row in free.items()
            if (row.token == NEW or not self.takes_new_rows_only) and self._is_of_its_kind(number)
        )
        others = [(row.at, number) for number, row in free.items() if number not in new]
        if self.in_transactions and self.stops_at_other_rows:
            new = frozenset(number for number in new if (0, number) < min(others, default=(1, 0)))
        until = state.now + LEASE
        writes = [Write("grant", token, new, worker.version, at=until)] if new else []
        if self.in_transactions and len(new) > 1:  # the limit of a claim
            writes.append(Write("grant", token, frozenset({min(new)}), worker.version, at=until))
        for which, row in free.items():
            if which not in new:
                names = frozenset({which})
                writes.append(Write("claim", token, names, worker.version, row, until, by_row=True))
        for write in writes:
            sent = Worker("send", worker.claims - 1, token, sent=write, left=write.rows)
            yield from self._send(state, sent, write, idle)
        if not (writes or self.in_transactions):
            yield "finds nothing", state, idle

    def _is_of_its_kind(self, number: int) -> bool:
        """Return whether a row was inserted under the feature: no older version reads it."""
        return not (self.beside_the_former and self.takes_rows_of_its_kind and number == EARLY)

    def _send(
        self, state: State, worker: Worker, write: Write, idle: Worker
    ) -> Iterator[tuple[str, State, Worker]]:
        held, there = self._apply(state, write)
        is_own = self.knows_its_own and _has_token(state, write.token)
        if held or is_own:
            yield f"sends a {write.what}", there, self._held(worker)
        else:
            if _has_token(state, write.token) or _has_token(state, write.token - ANEW):
                state = state._replace(wrong="a claim that holds is reported as rejected")
            yield f"sends a {write.what} that is rejected", state, idle
        if state.unknowns:
            sent = state._replace(sent=write, unknowns=0)
            after = worker._replace(at="ask") if self.reads_back else self._held(worker)
            if not self.reads_back:
                sent = sent._replace(wrong="a handler runs without a claim")
            yield f"sends a {write.what}, without a response", sent, after

    def _ask(
        self, state: State, worker: Worker, idle: Worker
    ) -> Iterator[tuple[str, State, Worker]]:
        assert worker.sent
        write = worker.sent
        if _has_token(state, write.token):
            yield "reads back: it is mine", state, self._held(worker)
        elif write.version == state.version:
            again = worker._replace(at="send")
            if not self.repeats_the_same:
                other = write._replace(token=write.token + ANEW)
                again = again._replace(token=other.token, sent=other)
            yield "reads back: not yet", state, again
        else:
            yield "reads back: it is not mine", state, idle

    def _held(self, worker: Worker) -> Worker:
        assert worker.sent
        is_out = worker.sent.what == "claim"
        return Worker("hold", worker.claims, worker.token, left=worker.left, is_out=is_out)

    def _hold(
        self, state: State, worker: Worker, idle: Worker
    ) -> Iterator[tuple[str, State, Worker]]:
        """End or retry a job, write the stretch out, or remove it."""
        for which in worker.left:
            after = worker._replace(left=worker.left - {which})
            drop = Write("drop", worker.token, frozenset({which}), by_row=worker.is_out)
            held, there = self._apply(state, drop)
            if held or state.rows[which] is None:
                yield f"ends job {which}", there, after
            elif worker.is_out or not self.ends_by_row_afterwards:
                real = state.abstract[which]
                if real and real.token == worker.token:
                    there = there._replace(wrong="an outcome that holds is reported as rejected")
                yield f"loses job {which}", there, after
            else:
                yield "finds its stretch written out", state, worker._replace(is_out=True)
            if state.unknowns:
                sent = state._replace(sent=drop, unknowns=0)
                yield f"ends job {which}, without a response", sent, worker
            if worker.is_out or not self.writes_out_before_moves:
                move = drop._replace(what="move", at=state.now)
                held, there = self._apply(state, move)
                moved = there.rows[which]
                if held and moved and self.writes_out_at_moves:
                    there = self._make_way(there, moved, which)
                yield f"retries job {which}", there, after
        mine = any(stretch.token == worker.token for stretch in state.record)
        if mine and not worker.is_out and worker.left:
            out = Write("out", worker.token, worker.left)
            held, there = self._apply(state, out)
            yield "writes its stretch out", there, worker._replace(is_out=held)
        if not worker.left or not self.never_leaves_rows:
            end = Write("end", worker.token)
            yield "removes its stretch", self._apply(state, end)[1], idle

    def _cancel(self, state: State) -> Iterator[tuple[str, State]]:
        """Cancel a row as it was read: waiting, or claimed by row."""
        if state.operator is None:
            for which, row in enumerate(state.rows):
                is_free = row and not _is_named(state.record, row, which)
                if state.cancels and row and is_free:
                    read = (state.version, which, row)
                    there = state._replace(operator=read, cancels=0)
                    yield f"an operator reads row {which}", there
        else:
            version, which, seen = state.operator
            cancel = Write("cancel", CANCEL, frozenset({which}), version, seen, by_row=True)
            there = self._apply(state, cancel)[1]
            yield "the operator cancels", there._replace(operator=None)

    def _claim_as_before(self, state: State) -> Iterator[tuple[str, State]]:
        """Claim as the previous version does, which does not know the record."""
        row = state.rows[EARLY]
        if state.former is None and state.formers and row and row.token == NEW:
            claim = Write("former claim", 50, frozenset({EARLY}), 0, row, by_row=True)
            yield "a former process reads the row", state._replace(former=claim, formers=0)
        elif state.former:
            claim = state.former._replace(at=state.now + LEASE)
            _, there = self._apply(state, claim)
            yield "the claim of the former process arrives", there._replace(former=None)

    # The lane

    def _view(self, record: Record, row: Row | None, number: int) -> Row | None:
        """Return a row as readers see it: with the claim of its stretch."""
        if row is None:
            return None
        stretch = self._covers(record, row, number)
        if stretch is None:
            return row
        return Row(row.fence + 1, stretch.until, stretch.token, row.cancelled)

    def _covers(self, record: Record, row: Row, number: int) -> Stretch | None:
        """Return the stretch that claims a row: the one that names it, or whose range it is in."""
        if row.token != NEW:
            return None
        if not self.in_transactions:
            return next((stretch for stretch in record if number in stretch.names), None)
        return next(
            (stretch for stretch in record if stretch.first <= number <= max(stretch.names)), None
        )

    def _is_hidden(self, state: State, row: Row, number: int) -> bool:
        """Return whether claimers, which begin behind the stretches that hold, miss a due row."""
        ends = [max(stretch.names) for stretch in state.record if stretch.until > state.now]
        is_due = row.at <= state.now
        return self.in_transactions and is_due and (row.at, number) <= (0, max(ends, default=-1))

    def _make_way(self, state: State, row: Row, number: int) -> State:
        """Write out the stretches that do not end before a row; in the row's transaction."""
        for stretch in state.record:
            if self.in_transactions and (row.at, number) <= (0, max(stretch.names)):
                _, state = self._apply(state, self._written_out(state.rows, stretch))
        return state

    def _written_out(self, rows: Rows, stretch: Stretch) -> Write:
        names = frozenset(
            number
            for number, row in enumerate(rows)
            if row and number in stretch.names and row.token == NEW
        )
        return Write("out", stretch.token, names)

    def _apply(self, state: State, write: Write) -> tuple[bool, State]:
        """Apply a write if its condition holds; record faults."""
        match write.what:
            case "grant":
                return self._apply_grant(state, write)
            case "out" | "end":
                return self._apply_out(state, write)
            case _ if write.by_row:
                return self._apply_to_row(state, write)
            case _:
                return self._apply_in_stretch(state, write)

    def _apply_grant(self, state: State, write: Write) -> tuple[bool, State]:
        if self.grants_by_version and state.version != write.version:
            return False, state
        first = 1 + max((max(stretch.names) for stretch in state.record), default=-1)
        stretch = Stretch(write.token, write.rows, write.at, first if self.in_transactions else 0)
        abstract, wrong = state.abstract, ""
        for number in write.rows:
            real, row = abstract[number], state.rows[number]
            wrong = wrong or _why_not(real, state.now)
            if real and row:
                if row.fence < real.fence:
                    wrong = wrong or "a fence does not grow"
                claimed = Row(real.fence + 1, write.at, write.token, real.cancelled)
                abstract = put(abstract, number, claimed)
        return True, state._replace(
            record=state.record | {stretch},
            version=state.version + 1,
            abstract=abstract,
            granted=state.granted | {write.token},
            wrong=wrong,
        )

    def _apply_out(self, state: State, write: Write) -> tuple[bool, State]:
        """Write a stretch into its rows and remove it, or only remove it."""
        stretch = next((other for other in state.record if other.token == write.token), None)
        if stretch is None:
            return False, state
        rows = state.rows
        for number in write.rows:
            row = rows[number]
            if row is None or row.token != NEW:
                if self.writes_out_what_is_there:
                    return False, state
                row = Row(0, 0, NEW)
            fence = row.fence + self.counts_the_claim
            rows = put(rows, number, Row(fence, stretch.until, stretch.token, row.cancelled))
        record = state.record - {stretch}
        return True, state._replace(rows=rows, record=record, version=state.version + 1)

    def _apply_in_stretch(self, state: State, write: Write) -> tuple[bool, State]:
        """End or move a job under the token of its stretch."""
        (number,) = write.rows
        row = state.rows[number]
        is_held = row and any(
            stretch.token == write.token and number in stretch.names for stretch in state.record
        )
        if row is None or (self.ends_by_token and not is_held):
            return False, state
        new = None if write.what == "drop" else row._replace(at=write.at, token=write.token + 100)
        return True, self._changed(state, number, new, write)

    def _apply_to_row(self, state: State, write: Write) -> tuple[bool, State]:
        """Claim, end, move or cancel one row under the token that was read."""
        (number,) = write.rows
        row = state.rows[number]
        seen = write.seen or row
        token = seen.token if write.seen and seen else write.token
        if row is None or seen is None or row.token != token or row.at != seen.at:
            return False, state
        is_new = row.token == NEW and write.what != "former claim"
        if is_new and self.cancels_by_version:
            is_free = self._covers(state.record, row, number) is None
            if not (is_free if self.in_transactions else state.version == write.version):
                return False, state
        match write.what:
            case "drop":
                new = None
            case "move":
                new = row._replace(at=write.at, token=write.token + 100)
            case "cancel":
                new = row._replace(token=CANCEL, cancelled=True)
            case _:
                new = Row(row.fence + 1, write.at, write.token, row.cancelled)
        version = state.version + (is_new and self.changes_raise_the_version)
        return True, self._changed(state, number, new, write)._replace(version=version)

    def _changed(self, state: State, number: int, new: Row | None, write: Write) -> State:
        """Change a row, and what claims by row would leave of it."""
        real = state.abstract[number]
        wrong, after = "", new
        if write.what in ("claim", "former claim"):
            wrong = _why_not(real, state.now)
        elif write.what == "cancel":
            if real is None or write.seen is None or real.token != write.seen.token:
                wrong = "a stale cancel is accepted"
        elif real is None or real.token != write.token:
            wrong = f"a stale {write.what} is accepted"
        if real and new:
            fence = real.fence + ("claim" in write.what)
            after = Row(fence, new.at, new.token, real.cancelled or new.cancelled)
        rows = put(state.rows, number, new)
        abstract = put(state.abstract, number, after)
        return state._replace(rows=rows, abstract=abstract, wrong=wrong)


def _why_not(real: Row | None, now: int) -> str:
    """Return why a row may not be claimed."""
    if real is None:
        return "a job that has ended is claimed"
    if real.at > now:
        return "a claimed row is claimed"
    return ""


def _is_named(record: Record, row: Row, number: int) -> bool:
    """Return whether a stretch that was read names a row."""
    return row.token == NEW and any(number in stretch.names for stretch in record)


def _has_token(state: State, token: int) -> bool:
    """Return whether the record or a row shows a claim (rule U5)."""
    rows = any(row and row.token == token for row in state.rows)
    return rows or any(stretch.token == token for stretch in state.record)


MODELS = {
    "rows by name": Stretches(),
    "rows by name, and an operator": Stretches(with_an_operator=True),
    "rows by range, in transactions": Stretches(in_transactions=True, with_an_operator=True),
    "beside the previous version": Stretches(beside_the_former=True),
}
MUTANTS = {
    "an unconditional grant": Stretches(grants_by_version=False),
    "a grant of claimed rows": Stretches(skips_claimed_rows=False),
    "a grant of rows that were claimed before": Stretches(takes_new_rows_only=False),
    "the rows are read before the record": Stretches(reads_the_record_first=False),
    "a grant of rows that the former version reads": Stretches(
        beside_the_former=True, takes_rows_of_its_kind=False
    ),
    "an unconditional outcome": Stretches(ends_by_token=False),
    "an outcome gives up with its stretch": Stretches(ends_by_row_afterwards=False),
    "a retry is not written out": Stretches(writes_out_before_moves=False),
    "a written out claim is not counted": Stretches(counts_the_claim=False),
    "a deleted row is written out": Stretches(writes_out_what_is_there=False),
    "a stretch is removed with rows left": Stretches(never_leaves_rows=False),
    "a cancel ignores the record": Stretches(with_an_operator=True, cancels_by_version=False),
    "a cancel keeps the version": Stretches(with_an_operator=True, changes_raise_the_version=False),
    "a range begins before another due row": Stretches(
        in_transactions=True, stops_at_other_rows=False
    ),
    "an insert into a range leaves the stretch": Stretches(
        in_transactions=True, writes_out_at_inserts=False
    ),
    "a retry into a range leaves the stretch": Stretches(
        in_transactions=True, writes_out_at_moves=False
    ),
    "an unknown grant runs": Stretches(reads_back=False),
    "a rejection is not verified": Stretches(knows_its_own=False),
    "a repeat has another token": Stretches(repeats_the_same=False),
}
