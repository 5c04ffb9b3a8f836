"""Changes that one conditional write decides.

A feature says once what it changes: the write that decides, and what follows from it. The write is
that of a record (a unique key, a schedule), or the verdict on a row (the end of a job). With
transactions all of it is one group. Elsewhere the deciding write comes first, on the version or
token that was read, and its value or outcome holds all that the rest depends on. Any process that
finds it may write the rest again, and then close it (rules C1 to C9).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum
from itertools import zip_longest
from typing import Final, NamedTuple

from dueline.batches import ends
from dueline.batches.ends import End
from dueline.core.clock import DAY_US
from dueline.core.errors import OF_ONE_CALL, StoreUnavailable, Unknown
from dueline.core.store import Commit, Drop, Group, Move, Put, Store, Verdict
from dueline.jobs.history import AttemptAndJob, row_of, rows_of_ended
from dueline.jobs.results import Kept, keep_each, merged

RESEND_US_MAX: Final = DAY_US
"""No insert is repeated later: stores remember deleted keys for a limited time (rule C5)."""

_BYTES_MAX: Final = 2**15
"""Maximum size of the values that one conditional write holds."""

_NOTHING: Final = Group()


class Cell(NamedTuple):
    """How a decision is written that is completed later.

    Attributes:
      write: The deciding write; its value or outcome holds all that the rest depends on.
      closed: The record, or the deletion of the row, once all of that is stored.
    """

    write: Commit | Move
    closed: Put | Drop


class Decision(NamedTuple):
    """A conditional write of one record or row, and what follows from it.

    Attributes:
      write: The deciding write: a commit of one `Put`, after what it depends on in the same
        partition, or the verdict on a row. It is the only one in a transaction, or if nothing
        follows.
      carried: The verdicts, commits, jobs and rows that follow; each repeat writes the same.
      opens: Makes the writes that take the place of `write` where the rest comes later; None if
        `write` holds all that the rest depends on, and is never closed.
      attempt: The attempt whose history row follows; decisions that are applied together share
        such rows. If `opens` is None, nothing could repeat the row, and it comes first.
      kept: The result that follows; decisions that are applied together share such records.
      end: How a job of a batch ended; decisions that are applied together share such records.
      takes: Carried writes of records, each on the version that it names; skipped elsewhere than
        in a transaction if the record has moved on (rule C6).
      unless: Conditions that only a transaction needs, since elsewhere rule B1 holds.
      frees: Writes that remove what is no longer needed, each on the version that it names; they
        come last, and nothing depends on them.
      is_awaited: Whether others may wait for what it carries.
      closed: What closes it, once its cell is stored; see `opened`.
      first: Plain writes that come before the deciding one, one group after the other; they do no
        harm if that is refused.
    """

    write: Commit | Verdict
    carried: Group = _NOTHING
    opens: Callable[[], Cell] | None = None
    attempt: AttemptAndJob | None = None
    kept: Kept | None = None
    end: End | None = None
    takes: Sequence[Commit] = ()
    unless: Sequence[Commit] = ()
    frees: Sequence[Commit] = ()
    is_awaited: bool = False
    closed: Put | Drop | None = None
    first: Sequence[Group] = ()

    def commit(self) -> Commit:
        """Return the deciding write, of a record."""
        assert isinstance(self.write, Commit)
        return self.write

    def put(self) -> Put:
        """Return the record that the deciding write writes; before it are its conditions."""
        *_, put = self.commit().writes
        assert isinstance(put, Put)
        return put

    def opened(self) -> "Decision":
        """Return the decision as it is written where the rest comes later."""
        if self.opens is None:
            return self
        write, closed = self.opens()
        return Decision(write, self.carried, None, self.attempt, self.kept, self.end, self.takes,
                        self.unless, self.frees, self.is_awaited, closed, self.first)  # fmt: skip


def of_record(opened: Commit, carried: Group, closed: Put) -> Decision:
    """Return the decision of a record that is replaced once all that it carries is stored.

    Args:
        opened: The deciding write: one `Put`.
        carried: What follows.
        closed: The record afterwards.
    """
    (put,) = opened.writes
    write = opened._replace(writes=(closed._replace(expect=put.expect),))
    return Decision(write, carried, lambda: Cell(opened, closed))


class Completion(Enum):
    """What `complete` did."""

    HERE = "this call has written all that was left"
    ELSEWHERE = "one transaction wrote all of it, or another process has"
    TOO_LATE = "it is too late to insert; the record is closed"


def decide(
    store: Store, decisions: Sequence[Decision], *, in_order: bool = False, alone: bool = False
) -> list[bool]:
    """Apply decisions about different records, each with all that it carries or not at all.

    Many are decided together: all of them in a transaction; elsewhere those of one partition. If
    one of these is refused, so are the others, although each by itself may hold.

    Args:
        store: The store.
        decisions: The decisions.
        in_order: Apply none after one that is refused.
        alone: Refuse none because of another one; they share a write all the same.

    Returns:
        For each whether this call has applied it.

    Raises:
        Unknown: Some may be applied. Decide again, or read their records and complete them.
    """
    if not decisions:
        return []
    if store.transactional:
        if alone:
            return list(store.together([group_of([decision]) for decision in decisions]))
        return [store.together([group_of(decisions)])[0]] * len(decisions)
    for groups in zip_longest(*(decision.first for decision in decisions), fillvalue=_NOTHING):
        store.together(groups)
    made: dict[int, Decision] = {}
    try:
        if alone:
            made = _made_alone(store, decisions)
        for batch in () if alone else _batches(decisions, in_order=in_order):
            writes = [write for each in batch.values() for write in each.commit().writes]
            if store.commit(next(iter(batch.values())).commit().partition, writes):
                made |= batch
            elif in_order:
                break
        done = dict(zip(made, _follow(store, list(made.values())), strict=True))
    except StoreUnavailable as error:
        if made and not isinstance(error, Unknown):
            raise Unknown(f"{error.message} Some of it may be stored.") from error
        raise
    return [done.get(place, False) for place in range(len(decisions))]


def settle(
    store: Store,
    decisions: Sequence[Decision],
    *,
    later: Callable[[Sequence[Decision]], None] | None = None,
) -> list[bool]:
    """Apply decisions about different rows, each by itself, with all that it carries or not at all.

    Args:
        store: The store.
        decisions: The decisions.
        later: Takes decisions that were made, and writes what they carry; used where that is no
            part of a transaction. None writes it here.

    Returns:
        For each whether its verdict held. If not, nothing of it was stored, but for a history row
        that comes first, on stores without transactions: readers deduplicate those by their ids.
    """
    if not decisions:
        return []
    if store.transactional:
        held = list(store.together([group_of([decision]) for decision in decisions]))
        free(store, [decision for decision, sure in zip(decisions, held, strict=True) if sure])
        return held
    first = [
        decision.attempt
        for decision in decisions
        if decision.opens is None and decision.attempt is not None
    ]
    if first:
        store.append(rows_of_ended((), first))
    opened = [
        decision.opened()
        if decision.attempt
        or decision.kept
        or decision.end
        or decision.takes
        or any(decision.carried)
        else decision
        for decision in decisions
    ]
    held = list(store.settle(verdicts_of(opened)))
    made = [decision for decision, sure in zip(opened, held, strict=True) if sure]
    is_open = [decision for decision in made if decision.closed is not None]
    if is_open and later is not None:
        later(is_open)
    else:
        carry(store, is_open)
    free(store, [decision for decision in made if decision.closed is None])
    return held


def carry(store: Store, made: Sequence[Decision]) -> None:
    """Write what the verdicts on rows carry; if that fails, the next claimer of the rows does."""
    if made:
        with suppress(StoreUnavailable):
            _follow(store, made)


def complete(store: Store, decision: Decision, *, age_us: int) -> Completion:
    """Write again what the decision of a record carries that is as it was decided; then close it.

    age_us: time since the decision, in microseconds.
    """
    if store.transactional and decision.opens is None:
        return Completion.ELSEWHERE
    opened = decision.opened()
    if age_us >= RESEND_US_MAX:
        _follow(store, [opened._replace(carried=_NOTHING)])
        return Completion.TOO_LATE
    return Completion.HERE if _follow(store, [opened])[0] else Completion.ELSEWHERE


def complete_rows(store: Store, decisions: Sequence[Decision]) -> None:
    """Write again what the verdicts on rows carry that have an outcome; then drop the rows."""
    _follow(store, [decision.opened() for decision in decisions])


def verdicts_of(decisions: Sequence[Decision]) -> list[Verdict]:
    """Return the deciding writes of decisions about rows."""
    return [decision.write for decision in decisions if not isinstance(decision.write, Commit)]


def group_of(decisions: Sequence[Decision], beside: Group = _NOTHING) -> Group:
    """Return the group of decisions, and of another group, for stores where it is a transaction."""
    verdicts, commits = list(beside.verdicts), list(beside.commits)
    jobs, rows, attempts, results = list(beside.jobs), list(beside.rows), [], []
    batched = [decision.end for decision in decisions if decision.end is not None]
    for write, carried, _, attempt, kept, _, takes, unless, *_, first in decisions:
        commits += [commit for group in first for commit in group.commits]
        if isinstance(write, Commit):
            commits.append(write)
        else:
            verdicts.append(write)
        verdicts += carried.verdicts
        commits += [*carried.commits, *takes, *unless]
        jobs += carried.jobs
        rows += carried.rows
        if attempt is not None:
            attempts.append(attempt)
        if kept is not None:
            results.append(kept)
    commits += keep_each(results)
    commits += ends.commits_of(batched)
    rows += [row_of(*attempts[0])] if len(attempts) == 1 else rows_of_ended((), attempts)
    return Group(verdicts, merged(commits) if len(commits) > 1 else commits, jobs, rows)


def free(store: Store, made: Iterable[Decision], more: Iterable[Commit] = ()) -> None:
    """Remove what is no longer needed after decisions; what is left behind does no harm.

    This is no part of the decisions, since it must not stop one.
    """
    frees = [*(commit for decision in made for commit in decision.frees), *more]
    groups = [Group(commits=(commit,)) for commit in frees]
    if groups:
        with suppress(StoreUnavailable):
            store.together(groups)


def joined(groups: Sequence[Group]) -> Group:
    """Join groups to one, which holds or fails as a whole."""
    if len(groups) == 1:
        return groups[0]._replace(commits=merged(groups[0].commits))
    return Group(
        [verdict for group in groups for verdict in group.verdicts],
        merged([commit for group in groups for commit in group.commits]),
        [job for group in groups for job in group.jobs],
        [row for group in groups for row in group.rows],
    )


def _made_alone(store: Store, decisions: Sequence[Decision]) -> dict[int, Decision]:
    """Decide each by itself; return those that hold, by their places."""
    opened = [each.opened() if any(each.carried) else each for each in decisions]
    held = store.together([Group(commits=(each.commit(),)) for each in opened])
    return {place: each for place, each in enumerate(opened) if held[place]}


def decide_each(store: Store, decisions: Sequence[Decision]) -> list[bool | Exception]:
    """Apply decisions about different records, each by itself; return the errors of single ones."""
    try:
        return list(decide(store, decisions, alone=True))
    except OF_ONE_CALL as error:
        if len(decisions) == 1:
            return [error]
    return [answer for each in decisions for answer in decide_each(store, [each])]


def _batches(decisions: Sequence[Decision], *, in_order: bool) -> Iterable[dict[int, Decision]]:
    """Return the decisions by their places, those together that are made by one write."""
    batches: dict[object, dict[int, Decision]] = {}
    sizes = Counter[str]()
    for place, decision in enumerate(decisions):
        opened = decision.opened() if any(decision.carried) else decision
        partition = opened.commit().partition
        sizes[partition] += len(opened.put().value)
        batch = place if in_order else (partition, sizes[partition] // _BYTES_MAX)
        batches.setdefault(batch, {})[place] = opened
    return batches.values()


def _follow(store: Store, made: Sequence[Decision]) -> list[bool]:
    """Write what decisions carry, then close them; return which of them are done."""
    for decision in made:
        for commit in decision.takes:
            store.commit(commit.partition, commit.writes)
    carried = joined([decision.carried for decision in made])
    attempts = [decision.attempt for decision in made if decision.attempt is not None]
    if attempts:
        carried = carried._replace(rows=[*carried.rows, *rows_of_ended((), attempts)])
    if kept := [decision.kept for decision in made if decision.kept is not None]:
        carried = carried._replace(commits=[*carried.commits, *keep_each(kept)])
    if batched := [decision.end for decision in made if decision.end is not None]:
        carried = carried._replace(commits=[*carried.commits, *ends.commits_of(batched)])
    if any(carried) and not store.together([carried])[0]:
        return [False] * len(made)
    drops = [decision.closed for decision in made if isinstance(decision.closed, Drop)]
    if drops:
        store.settle(drops)
        free(store, made)
        return [True] * len(made)
    return [_close(store, decision) for decision in made]


def _close(store: Store, decision: Decision) -> bool:
    """Close a record, if it is still as decided."""
    if not isinstance(decision.closed, Put):
        return True
    write = decision.closed._replace(expect=decision.put().version)
    return store.commit(decision.commit().partition, [write])
